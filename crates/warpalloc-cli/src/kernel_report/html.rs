//! The report as one page that needs nothing else.

use super::gather::KernelReport;
use super::{json, svg};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn render(report: &KernelReport) -> String {
    let data = in_script(&json::render(report).to_string());
    let picture = svg::render(report);
    let title = escaped(&format!("{} · {}", report.name, report.arch));
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    // What is put in is not looked through again: names may hold anything.
    while let Some((before, behind)) = rest.split_once("{{") {
        page += before;
        let (name, behind) = behind.split_once("}}").unwrap_or((behind, ""));
        page += match name {
            "title" => &title,
            "style" => STYLE,
            "script" => SCRIPT,
            "data" => &data,
            "version" => env!("CARGO_PKG_VERSION"),
            "picture" => &picture,
            _ => "",
        };
        rest = behind;
    }
    page + rest
}

/// JSON that may stand in a `script` element: no `<` can end it or begin a comment.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Text that may stand in an element or in an attribute.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Not even as a reference may a document hold them.
            c if c.is_control() && !"\n\t\r".contains(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_ends_the_script() {
        let json = serde_json::json!({ "name": "</script><!--<script>\u{2028}&" }).to_string();
        let safe = in_script(&json);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}']), "{safe}");
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(back["name"], "</script><!--<script>\u{2028}&");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escaped("a<b>&\"'\u{1}"),
            "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}"
        );
    }
}
