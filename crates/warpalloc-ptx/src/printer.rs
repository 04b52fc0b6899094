//! Tree to text, by editing the text the tree came from.
//!
//! Printing from the tree would lose comments, debug information and layout. Instead a
//! client says which spans change, and everything else is copied byte for byte.

use crate::ast::{Instruction, Name, Span};
use crate::visit::{Context, visit_names};

/// Two replacements that cover the same text, or one that lies outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the edit of bytes {}..{} overlaps another edit or is not part of the text", .0.start, .0.end)]
pub struct EditConflict(pub Span);

#[derive(Clone, Copy, Debug)]
struct Edit {
    span: Span,
    /// Where the new text lies in [`Edits::texts`].
    text: (usize, usize),
}

/// Changes to a text, collected in any order and applied in one pass.
///
/// Edits at the same place keep the order in which they were made, and insertions come
/// before a replacement that starts there.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    /// All new texts in one piece: a big function has hundreds of thousands of them.
    texts: String,
}

impl Edits {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Puts `text` in the place of `span`.
    pub fn replace(&mut self, span: Span, text: &str) {
        self.replace_with(span, |out| out.push_str(text));
    }

    /// Puts what `write` appends to its argument in the place of `span`; `write` must only
    /// append.
    pub fn replace_with(&mut self, span: Span, write: impl FnOnce(&mut String)) {
        let start = self.texts.len();
        write(&mut self.texts);
        let text = (start, self.texts.len());
        self.edits.push(Edit { span, text });
    }

    /// Removes `span`.
    pub fn delete(&mut self, span: Span) {
        self.replace(span, "");
    }

    /// Puts `text` in front of the byte at `offset`.
    pub fn insert(&mut self, offset: u32, text: &str) {
        self.replace(Span::new(offset, offset), text);
    }

    /// Puts `text` in front of a span.
    pub fn insert_before(&mut self, span: Span, text: &str) {
        self.insert(span.start, text);
    }

    /// Puts `text` behind a span.
    pub fn insert_after(&mut self, span: Span, text: &str) {
        self.insert(span.end, text);
    }

    /// Adds the changes of another collection behind the ones made so far.
    pub fn append(&mut self, other: &Edits) {
        let shift = self.texts.len();
        self.texts.push_str(&other.texts);
        self.edits.extend(other.edits.iter().map(|edit| Edit {
            span: edit.span,
            text: (edit.text.0 + shift, edit.text.1 + shift),
        }));
    }

    /// The text with all changes made. Where its lines end in CR LF, those of new texts do too.
    pub fn apply(&self, source: &str) -> Result<String, EditConflict> {
        let mut order: Vec<Edit> = self.edits.clone();
        // A stable sort: edits at one place stay in order. Empty spans sort first.
        order.sort_by_key(|edit| (edit.span.start, edit.span.end != edit.span.start));
        let mut out = String::with_capacity(source.len() + self.texts.len());
        let mut done = 0;
        let first_end = source.find('\n').unwrap_or(0);
        let crlf = source[..first_end].ends_with('\r');
        for edit in order {
            let conflict = EditConflict(edit.span);
            let kept = source.get(done..edit.span.start as usize).ok_or(conflict)?;
            source.get(edit.span.range()).ok_or(conflict)?;
            out.push_str(kept);
            let text = &self.texts[edit.text.0..edit.text.1];
            if crlf && text.contains('\n') {
                // Text moved from elsewhere in the source has its CR already.
                let lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
                out.push_str(&lines.collect::<Vec<_>>().join("\r\n"));
            } else {
                out.push_str(text);
            }
            done = edit.span.end as usize;
        }
        out.push_str(&source[done..]);
        Ok(out)
    }
}

/// Appends an instruction to `out` as `source` has it, with the names that `rename`
/// answers for replaced; `None` keeps a name.
pub fn write_instruction<'a, T: AsRef<str>>(
    out: &mut String,
    source: &str,
    inst: &Instruction<'a>,
    mut rename: impl FnMut(Name<'a>, Context) -> Option<T>,
) {
    let mut done = inst.span.start;
    visit_names(inst, |name, context| {
        if let Some(text) = rename(name, context) {
            out.push_str(Span::new(done, name.span.start).text(source));
            out.push_str(text.as_ref());
            done = name.span.end;
        }
    });
    out.push_str(Span::new(done, inst.span.end).text(source));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Stmt;

    #[test]
    fn no_edit_gives_the_text_back() {
        assert_eq!(Edits::new().apply("a\r\n\0").unwrap(), "a\r\n\0");
    }

    #[test]
    fn new_lines_end_as_those_of_the_text_do() {
        let mut edits = Edits::new();
        edits.insert(3, "x\ny\r\n");
        assert_eq!(edits.apply("a\r\nb\r\n").unwrap(), "a\r\nx\r\ny\r\nb\r\n");
        assert_eq!(edits.apply("a\n\nb").unwrap(), "a\n\nx\ny\r\nb");
    }

    #[test]
    fn edits_in_any_order() {
        let mut edits = Edits::new();
        edits.replace(Span::new(4, 7), "DEF");
        edits.insert_after(Span::new(4, 7), "<");
        edits.insert_before(Span::new(4, 7), "1");
        edits.insert_before(Span::new(4, 7), "2");
        edits.delete(Span::new(0, 4));
        let mut more = Edits::new();
        more.insert(11, "!");
        edits.append(&more);
        assert_eq!(edits.apply("abc def ghi").unwrap(), "12DEF< ghi!");
    }

    #[test]
    fn conflicts_are_refused() {
        let mut edits = Edits::new();
        edits.replace(Span::new(0, 3), "x");
        edits.replace(Span::new(2, 4), "y");
        assert_eq!(edits.apply("abcdef"), Err(EditConflict(Span::new(2, 4))));
        let mut edits = Edits::new();
        edits.replace(Span::new(3, 30), "x");
        assert!(edits.apply("abcdef").is_err());
    }

    #[test]
    fn an_instruction_with_new_names() {
        let source = ".version 9.0\n.target sm_90\n.entry k() {\n\
            @%p1  ld.global.v2.f32 /* two */ {%f1, %f2}, [ %rd1 + 4 ];\n}";
        let module = crate::parse(source).unwrap();
        let body = module.functions().next().unwrap().body.as_ref().unwrap();
        let Stmt::Inst(inst) = &body.stmts[0] else {
            panic!("no instruction")
        };
        let mut out = String::new();
        write_instruction(&mut out, source, inst, |name, _| {
            (name.text != "%f2").then(|| name.text.to_uppercase())
        });
        assert_eq!(
            out,
            "@%P1  ld.global.v2.f32 /* two */ {%F1, %f2}, [ %RD1 + 4 ];"
        );
    }
}
