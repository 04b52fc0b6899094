//! What moved, as annotations and as a summary of a step of a GitHub workflow.

use std::fmt::Write;
use std::path::PathBuf;

use super::judge::{Judgement, Row, Verdict};
use super::show;

/// Where to look: the source where it is known, else the PTX, else the table.
pub fn place(judgement: &Judgement, row: &Row) -> Option<(String, u32)> {
    let kernel = row.kernel;
    let source = kernel.source.as_ref().map(|s| (s.file.clone(), s.line));
    let text = || kernel.line.map(|line| (kernel.file.clone(), line));
    let table = || {
        row.entry
            .map(|entry| (judgement.baseline.to_owned(), entry.line))
    };
    let (file, line) = source.or_else(text).or_else(table)?;
    Some((in_workspace(&file), line))
}

/// Annotations are placed by paths within the repository.
fn in_workspace(file: &str) -> String {
    let workspace = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from);
    let workspace = workspace.or_else(|| std::env::current_dir().ok());
    let within = || {
        let whole = std::path::absolute(file).ok()?;
        let path = whole.strip_prefix(workspace?).ok()?;
        Some(path.display().to_string())
    };
    within().unwrap_or_else(|| file.to_owned())
}

/// A line per kernel that moved.
pub fn annotations(judgement: &Judgement, strict: bool) -> String {
    let mut out = String::new();
    for row in judgement.rows.iter().filter(|row| row.moved()) {
        let told = told(row);
        let level = match row.has(Verdict::Regression) {
            true => "error",
            false if strict => "error",
            false if !row.is_measured() => "warning",
            false => "notice",
        };
        let mut properties = Vec::new();
        if let Some((file, line)) = place(judgement, row) {
            properties.push(format!("file={}", property(&file)));
            properties.push(format!("line={line}"));
        }
        let title = match row.has(Verdict::Regression) {
            true => "a kernel takes more",
            false if row.is_new() => "a new kernel",
            false if row.has(Verdict::Better) => "a kernel takes less",
            false => "a kernel moved",
        };
        properties.push(format!("title={}", property(title)));
        let _ = writeln!(out, "::{level} {}::{}", properties.join(","), data(&told));
    }
    out
}

/// The kernel and its moves in one sentence.
pub fn told(row: &Row) -> String {
    let moved = row.moves.iter().filter(|m| m.verdict != Verdict::Same);
    let moves: Vec<String> = moved
        .map(|m| match row.is_new() {
            true => format!("{} {}, and a new kernel may take {}", m.figure, m.is, m.was),
            false => format!(
                "{} {} -> {} ({})",
                m.figure,
                m.was,
                m.is,
                show::verdict(row, m)
            ),
        })
        .collect();
    let title = show::title(row);
    match &row.kernel.figures {
        Err(reason) => format!("{title} is not measured: {reason}"),
        Ok(_) if moves.is_empty() => format!("{title} is not in the baseline"),
        Ok(_) => format!("{title}: {}", moves.join(", ")),
    }
}

fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A page in Markdown.
pub fn summary(judgement: &Judgement, strict: bool) -> String {
    let mark = if judgement.fails(strict) {
        "❌"
    } else {
        "✅"
    };
    let mut out = format!(
        "### {mark} warpalloc check: {}\n\n",
        show::sum(judgement, strict)
    );
    if judgement.fails(strict) {
        let _ = writeln!(
            out,
            "Where this is meant, `warpalloc check` with `--update` writes {} anew.\n",
            cell(judgement.baseline)
        );
    }
    let rows = || judgement.rows.iter().filter(|row| !row.moves.is_empty());
    let moved = || {
        rows().flat_map(|row| {
            let moves = row.moves.iter().filter(|m| m.verdict != Verdict::Same);
            moves.map(move |m| (row, m))
        })
    };
    if moved().next().is_some() {
        out += "| kernel | figure | was | is | change | |\n|---|---|---:|---:|---:|---|\n";
        for (row, m) in moved() {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                cell(&show::title(row)),
                m.figure,
                m.was,
                m.is,
                show::change(m),
                show::verdict(row, m)
            );
        }
        out.push('\n');
    }
    for row in judgement
        .rows
        .iter()
        .filter(|row| row.is_new() || !row.is_measured())
    {
        let (title, told) = (show::title(row), told(row));
        let rest = told.strip_prefix(&title).unwrap_or(&told);
        let _ = writeln!(out, "- {}{rest}", cell(&title));
    }
    for entry in &judgement.gone {
        let _ = writeln!(out, "- {} is gone", cell(&entry.key.name));
    }
    out
}

/// Names hold what Markdown reads as something else.
fn cell(text: &str) -> String {
    format!("`` {} ``", text.replace('|', "\\|"))
}
