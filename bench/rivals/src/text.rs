//! The text form of functions and of allocated code, which external allocators speak. The
//! grammar is in the README.

use crate::code::{Code, Item, Place};
use crate::function::{Block, Func, Inst, Kind, Val};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;

const KINDS: [Kind; 7] = [
    Kind::Op,
    Kind::Const,
    Kind::Load,
    Kind::Store,
    Kind::Branch,
    Kind::Jump,
    Kind::Ret,
];

/// `f` as text, to be allocated to `k` registers.
pub fn print_function(f: &Func, k: usize) -> String {
    let mut out = String::new();
    let name = f.name.replace(char::is_whitespace, "_");
    let mut line = |words: String| {
        out.push_str(&words);
        out.push('\n');
    };
    line(format!("function {name} registers {k}"));
    for block in &f.blocks {
        let mut words = format!("block depth {}", block.depth);
        if block.is_edge {
            words.push_str(" edge");
        }
        if !block.params.is_empty() {
            words.push_str(" params");
            values(&mut words, &block.params);
        }
        line(words);
        for i in block.insts() {
            let inst = &f.insts[i];
            let mut words = inst.kind.name().to_owned();
            if !inst.defs.is_empty() {
                values(&mut words, &inst.defs);
                words.push_str(" =");
            }
            values(&mut words, &inst.uses);
            if inst.kind.is_terminator() && !block.succs.is_empty() {
                if !block.args.is_empty() {
                    words.push_str(" args");
                    values(&mut words, &block.args);
                }
                words.push_str(" to");
                for s in &block.succs {
                    words.push(' ');
                    words.push_str(&s.to_string());
                }
            }
            line(words);
        }
    }
    line("end".to_owned());
    out
}

fn values(words: &mut String, values: &[Val]) {
    for v in values {
        // Writing to a string cannot fail.
        let _ = write!(words, " v{v}");
    }
}

/// Reads a function and its number of registers.
pub fn function(text: &str) -> Result<(Func, usize)> {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    let ["function", name, "registers", k] = first[..] else {
        bail!("the first line is not `function NAME registers K`");
    };
    let k = k.parse().context("registers")?;
    let mut f = Func {
        name: name.to_owned(),
        ..Func::default()
    };
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["end"] => break,
            ["block", ..] => f.blocks.push(block(&words, f.insts.len() as u32)?),
            _ => instruction(&mut f, &words).with_context(|| format!("`{line}`"))?,
        }
    }
    let params = f.blocks.iter().flat_map(|b| &b.params);
    let defs = f.insts.iter().flat_map(|i| &i.defs);
    f.vals = params.chain(defs).max().map_or(0, |v| v + 1);
    f.link();
    Ok((f, k))
}

fn block(words: &[&str], start: u32) -> Result<Block> {
    let (depth, rest) = match words {
        ["block", "depth", depth, rest @ ..] => (depth.parse()?, rest),
        _ => bail!("`{}` is not `block depth D`", words.join(" ")),
    };
    let (is_edge, rest) = match rest {
        ["edge", rest @ ..] => (true, rest),
        _ => (false, rest),
    };
    let params = match rest {
        ["params", params @ ..] => params.iter().map(|w| value(w)).collect::<Result<_>>()?,
        [] => Vec::new(),
        _ => bail!("`{}` where parameters were expected", rest.join(" ")),
    };
    Ok(Block {
        params,
        insts: start..start,
        depth,
        is_edge,
        ..Block::default()
    })
}

fn instruction(f: &mut Func, words: &[&str]) -> Result<()> {
    let kind = KINDS.into_iter().find(|kind| kind.name() == words[0]);
    let kind = kind.context("no such instruction")?;
    let block = f.blocks.last_mut().context("no block")?;
    let mut inst = Inst {
        kind,
        defs: vec![],
        uses: vec![],
    };
    let mut list = &mut inst.uses;
    let mut is_target = false;
    for word in &words[1..] {
        match *word {
            "args" => list = &mut block.args,
            "to" => is_target = true,
            "=" => std::mem::swap(&mut inst.defs, list),
            target if is_target => block.succs.push(target.parse()?),
            word => list.push(value(word)?),
        }
    }
    f.insts.push(inst);
    block.insts.end = f.insts.len() as u32;
    Ok(())
}

fn value(word: &str) -> Result<Val> {
    let number = word.strip_prefix('v').and_then(|n| n.parse().ok());
    number.with_context(|| format!("`{word}` is not a value"))
}

/// Prints allocated code.
pub fn print_code(code: &Code) -> String {
    let place = |p: &Place| match p {
        Place::Reg(r) => format!(" r{r}"),
        Place::Slot(s) => format!(" s{s}"),
    };
    let mut out = String::new();
    for items in &code.blocks {
        out.push_str("block\n");
        for item in items {
            out += &match item {
                Item::Inst { inst, places } => {
                    let places: String = places.iter().map(place).collect();
                    format!("inst {inst}{places}\n")
                }
                Item::Move { to, from } => format!("move{}{}\n", place(to), place(from)),
                Item::Swap { a, b } => format!("swap{}{}\n", place(a), place(b)),
                Item::Remat { inst, to } => format!("remat {inst}{}\n", place(to)),
            };
        }
    }
    out + "end\n"
}

/// Reads allocated code.
pub fn code(text: &str) -> Result<Code> {
    let mut code = Code::default();
    for (n, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let item = match words[..] {
            [] => continue,
            ["end"] => return Ok(code),
            ["block"] => {
                code.blocks.push(Vec::new());
                continue;
            }
            _ => item(&words).with_context(|| format!("line {}: `{line}`", n + 1))?,
        };
        let block = code.blocks.last_mut();
        block
            .with_context(|| format!("line {}: no block", n + 1))?
            .push(item);
    }
    bail!("the code has no `end`")
}

fn item(words: &[&str]) -> Result<Item> {
    Ok(match *words {
        ["inst", inst, ref places @ ..] => Item::Inst {
            inst: inst.parse()?,
            places: places.iter().map(|w| place(w)).collect::<Result<_>>()?,
        },
        ["move", to, from] => Item::Move {
            to: place(to)?,
            from: place(from)?,
        },
        ["swap", a, b] => Item::Swap {
            a: place(a)?,
            b: place(b)?,
        },
        ["remat", inst, to] => Item::Remat {
            inst: inst.parse()?,
            to: place(to)?,
        },
        _ => bail!("expected inst, move, swap, remat, block or end"),
    })
}

fn place(word: &str) -> Result<Place> {
    ensure!(
        word.is_ascii() && !word.is_empty(),
        "`{word}` is not a place"
    );
    let (kind, number) = word.split_at(1);
    match kind {
        "r" => Ok(Place::Reg(number.parse()?)),
        "s" => Ok(Place::Slot(number.parse()?)),
        _ => bail!("`{word}` is neither a register nor a slot"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Shape};

    #[test]
    fn functions_survive_the_text() {
        for seed in 1..4 {
            let mut f = generate::function(Shape::Mixed, 200, 12, seed).expect("a function");
            f.mark_constants();
            let text = print_function(&f, 9);
            let (read, k) = function(&text).expect("what was printed");
            assert_eq!(k, 9);
            read.validate().expect("a valid function");
            assert_eq!(print_function(&read, 9), text);
        }
    }

    #[test]
    fn code_survives_the_text_and_errors_name_the_line() {
        let text = "block\ninst 0 r1\nmove s2 r1\nswap r1 r2\nblock\nremat 0 r5\nend\n";
        let read = code(text).expect("code");
        assert_eq!(print_code(&read), text);
        let error = code("block\nmove q1 r0\nend").expect_err("there is no q1");
        assert_eq!(
            format!("{error:#}"),
            "line 2: `move q1 r0`: `q1` is neither a register nor a slot"
        );
        assert!(code("block\ninst 0").is_err());
    }
}
