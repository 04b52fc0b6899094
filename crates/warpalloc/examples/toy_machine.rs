//! Applies an allocation to the instructions of a toy machine, and executes them.
//!
//! The client has instructions of its own, which the library never sees: their numbers travel
//! along as payloads. The walk says what to write, where operands are, and where branches lead.
//! Inputs of the machine's instructions are in registers or in words of memory, results in
//! registers.
//!
//! ```sh
//! cargo run -p warpalloc --example toy_machine
//! ```

use std::collections::HashMap;
use warpalloc::allocation::{Allocation, Edit, Frame, Label, SlotAddr, Step, ValuePlace};
use warpalloc::function::{Block, Builder, Effect, Function, VReg};
use warpalloc::target::{Class, File, Target};
use warpalloc::{Options, Strategy, allocate};

/// What an instruction of the client does to its operands, results first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    /// A constant.
    Const(i32),
    /// The next number of the input.
    Input,
    Add,
    Sub,
    Mul,
    /// Appends to the output.
    Output,
    /// Goes to the first successor where the number is not negative, else to the second.
    IfNatural,
    Jump,
    Halt,
}

impl Op {
    fn compute(self, inputs: &[i32]) -> Option<i32> {
        Some(match (self, inputs) {
            (Op::Const(number), []) => number,
            (Op::Add, &[a, b]) => a.wrapping_add(b),
            (Op::Sub, &[a, b]) => a.wrapping_sub(b),
            (Op::Mul, &[a, b]) => a.wrapping_mul(b),
            _ => return None,
        })
    }
}

/// The client's program.
struct Program {
    blocks: Vec<Code>,
}

/// A block: parameters, instructions, and successors with arguments.
struct Code(Vec<u32>, Vec<Instr>, Vec<(usize, Vec<u32>)>);

/// An instruction: a result and inputs.
struct Instr(Op, Option<u32>, Vec<u32>);

/// Reads numbers until a negative one, and writes their sum, how many there were and the sum
/// of their squares, in turn, once for each number and once more. Edges back to the head of a
/// loop are critical here, and arguments change places on the second one.
fn statistics() -> Program {
    let plain = |op, result, inputs: &[u32]| Instr(op, Some(result), inputs.to_vec());
    let end = |op, inputs: &[u32]| Instr(op, None, inputs.to_vec());
    let entry = vec![
        plain(Op::Const(0), 0, &[]),
        plain(Op::Const(1), 1, &[]),
        end(Op::Jump, &[]),
    ];
    // Parameters: count, sum, squares.
    let head = vec![
        plain(Op::Input, 5, &[]),
        plain(Op::Add, 6, &[3, 5]),
        plain(Op::Mul, 7, &[5, 5]),
        plain(Op::Add, 8, &[4, 7]),
        plain(Op::Add, 9, &[2, 1]),
        end(Op::IfNatural, &[5]),
    ];
    // Parameters: how often still, and the three numbers in turn.
    let output = vec![
        end(Op::Output, &[11]),
        plain(Op::Sub, 14, &[10, 1]),
        end(Op::IfNatural, &[14]),
    ];
    let done = vec![end(Op::Output, &[15]), end(Op::Halt, &[])];
    Program {
        blocks: vec![
            Code(vec![], entry, vec![(1, vec![0, 0, 0])]),
            Code(
                vec![2, 3, 4],
                head,
                vec![(1, vec![9, 6, 8]), (2, vec![2, 3, 2, 4])],
            ),
            Code(
                vec![10, 11, 12, 13],
                output,
                vec![(2, vec![14, 12, 13, 11]), (3, vec![12])],
            ),
            Code(vec![15], done, vec![]),
        ],
    }
}

impl Program {
    fn instrs(&self) -> impl Iterator<Item = &Instr> {
        self.blocks.iter().flat_map(|Code(_, instrs, _)| instrs)
    }

    /// The output for `input`.
    fn interpret(&self, input: &[i32]) -> Vec<i32> {
        let (mut values, mut input) = (HashMap::new(), input.iter());
        let (mut output, mut at) = (Vec::new(), 0);
        loop {
            let Code(_, instrs, succs) = &self.blocks[at];
            let mut way = 0;
            for Instr(op, result, inputs) in instrs {
                let inputs: Vec<i32> = inputs.iter().map(|v| values[v]).collect();
                match op {
                    Op::Output => output.push(inputs[0]),
                    Op::IfNatural => way = usize::from(inputs[0] < 0),
                    Op::Halt => return output,
                    Op::Jump => {}
                    op => {
                        let next = || input.next().copied().unwrap_or(-1);
                        let number = op.compute(&inputs).unwrap_or_else(next);
                        values.extend(result.map(|result| (result, number)));
                    }
                }
            }
            let (to, args) = &succs[way];
            let args: Vec<i32> = args.iter().map(|v| values[v]).collect();
            values.extend(self.blocks[*to].0.iter().copied().zip(args));
            at = *to;
        }
    }

    /// The program as a function to allocate; payloads number its instructions.
    fn function(&self) -> Function {
        let mut b = Builder::new("program");
        let blocks: Vec<Block> = self.blocks.iter().map(|_| b.block()).collect();
        let vregs: Vec<VReg> = (0..16).map(|_| b.vreg(Class::R32)).collect();
        let mut number = 0;
        for (&block, Code(params, instrs, succs)) in blocks.iter().zip(&self.blocks) {
            for &param in params {
                b.param(block, vregs[param as usize]);
            }
            for (to, args) in succs {
                let args: Vec<VReg> = args.iter().map(|&v| vregs[v as usize]).collect();
                b.edge(block, blocks[*to], &args);
            }
            for Instr(op, result, inputs) in instrs {
                let mut inst = match op {
                    Op::Const(n) => b.inst(block, "const").imm(*n as u64).remat(1),
                    Op::Input => b.inst(block, "input").effect(Effect::Write),
                    Op::Output => b.inst(block, "output").effect(Effect::Write),
                    Op::Add => b.inst(block, "add"),
                    Op::Sub => b.inst(block, "sub"),
                    Op::Mul => b.inst(block, "mul"),
                    Op::IfNatural | Op::Jump => b.branch(block, "branch"),
                    Op::Halt => b.exit(block, "halt"),
                };
                if let &Some(result) = result {
                    inst = inst.def(vregs[result as usize]);
                }
                for &input in inputs {
                    inst = inst.use_anywhere(vregs[input as usize]);
                }
                inst.payload(number);
                number += 1;
            }
        }
        b.finish()
    }
}

/// What an instruction of the machine reads.
#[derive(Clone, Copy, Debug)]
enum Input {
    Register(usize),
    Word(usize),
}

/// An instruction of the machine.
#[derive(Clone, Debug)]
enum Line {
    Compute(Op, usize, Vec<Input>),
    Output(Input),
    Move(usize, usize),
    Swap(usize, usize),
    Store(usize, usize),
    Load(usize, usize),
    IfNatural(Input, Label, Label),
    Jump(Label),
    Halt,
}

/// The machine's code for `program`, each label under its label.
fn assemble(
    program: &Program,
    function: &Function,
    allocation: &Allocation,
) -> HashMap<Label, Vec<Line>> {
    let instrs: Vec<&Instr> = program.instrs().collect();
    let instr = |inst| instrs[function.inst(inst).payload as usize];
    let input = |place: ValuePlace| match place {
        ValuePlace::Reg(reg) => Input::Register(usize::from(reg.unit)),
        ValuePlace::Slot(slot) => Input::Word(word(slot, allocation.frame)),
    };
    let compute = |Instr(op, result, _): &Instr, places: Vec<ValuePlace>| {
        let inputs: Vec<Input> = places.into_iter().map(input).collect();
        match (result, &inputs[..]) {
            (Some(_), &[Input::Register(to), ref from @ ..]) => {
                Line::Compute(*op, to, from.to_vec())
            }
            (None, &[from]) => Line::Output(from),
            other => unreachable!("{op:?} has these operands: {other:?}"),
        }
    };
    let walk = allocation.walk(function);
    let mut code = HashMap::new();
    for label in walk.labels() {
        let mut lines = Vec::new();
        for step in walk.steps(label) {
            match (step, label) {
                (Step::Edit(Edit::Recompute { inst, regs }), _) => {
                    let places = regs.iter().copied().map(ValuePlace::Reg);
                    lines.push(compute(instr(*inst), places.collect()));
                }
                (Step::Edit(edit), _) => lines.extend(edited(edit, allocation.frame)),
                (Step::Inst(inst, places), Label::Block(block)) => match instr(inst).0 {
                    Op::Halt => lines.push(Line::Halt),
                    Op::Jump => lines.push(Line::Jump(walk.successor(block, 0))),
                    Op::IfNatural => {
                        let [yes, no] = [0, 1].map(|succ| walk.successor(block, succ));
                        let from = places.iter().map(input);
                        lines.extend(from.map(|from| Line::IfNatural(from, yes, no)));
                    }
                    _ => lines.push(compute(instr(inst), places.iter().collect())),
                },
                (Step::Inst(..), Label::Edge(..)) => unreachable!("an edge holds edits alone"),
            }
        }
        if let Label::Edge(block, succ) = label {
            let to = function.succs(block)[succ as usize].block;
            lines.push(Line::Jump(Label::Block(to)));
        }
        code.insert(label, lines);
    }
    code
}

/// The word at the beginning of a slot; the frame lies below its base.
fn word(at: SlotAddr, frame: Frame) -> usize {
    (at.offset + frame.size(at.space) as i32) as usize / 4
}

/// The code of an edit, one register or word at a time.
fn edited(edit: &Edit, frame: Frame) -> Vec<Line> {
    let word = |at| word(at, frame);
    let each = |width: u8, code: &dyn Fn(usize) -> Line| (0..width.into()).map(code).collect();
    match *edit {
        Edit::Move { to, from, width } => {
            let (to, from) = (usize::from(to.unit), usize::from(from.unit));
            each(width, &|i| Line::Move(to + i, from + i))
        }
        Edit::Swap { a, b, width } => {
            let (a, b) = (usize::from(a.unit), usize::from(b.unit));
            each(width, &|i| Line::Swap(a + i, b + i))
        }
        Edit::Store { to, from, width } => each(width, &|i| {
            Line::Store(word(to) + i, usize::from(from.unit) + i)
        }),
        Edit::Reload { to, from, width } => each(width, &|i| {
            Line::Load(usize::from(to.unit) + i, word(from) + i)
        }),
        ref other => unreachable!("{other:?} on a machine with one register file"),
    }
}

/// The output of the machine for `input`.
fn execute(code: &HashMap<Label, Vec<Line>>, entry: Block, input: &[i32]) -> Vec<i32> {
    let (mut regs, mut memory, mut output) = ([0; 256], [0; 256], Vec::new());
    let (mut input, mut at) = (input.iter(), Label::Block(entry));
    loop {
        for line in &code[&at] {
            let read = |from: Input| match from {
                Input::Register(reg) => regs[reg],
                Input::Word(word) => memory[word],
            };
            match line {
                Line::Compute(op, to, from) => {
                    let inputs: Vec<i32> = from.iter().map(|&from| read(from)).collect();
                    let next = || input.next().copied().unwrap_or(-1);
                    regs[*to] = op.compute(&inputs).unwrap_or_else(next);
                }
                &Line::Output(from) => output.push(read(from)),
                &Line::Move(to, from) => regs[to] = regs[from],
                &Line::Swap(a, b) => regs.swap(a, b),
                &Line::Store(to, from) => memory[to] = regs[from],
                &Line::Load(to, from) => regs[to] = memory[from],
                &Line::IfNatural(from, yes, no) => at = if read(from) >= 0 { yes } else { no },
                &Line::Jump(to) => at = to,
                Line::Halt => return output,
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let program = statistics();
    let function = program.function();
    let input = [3, 1, 4, 1, 5, -9];
    println!("interpreted: {:?}", program.interpret(&input));
    for strategy in Strategy::ALL {
        for registers in [3, 4, 8] {
            let target = Target::hardware(90)?.with_budget(File::R, registers);
            let options = Options::with_strategy(strategy);
            let allocation = allocate(&function, &target, &options)?;
            let code = assemble(&program, &function, &allocation);
            let output = execute(&code, function.entry(), &input);
            let lines: usize = code.values().map(Vec::len).sum();
            println!("{strategy} in {registers} registers, {lines} lines: {output:?}");
        }
    }
    Ok(())
}

#[test]
fn the_machine_computes_what_the_program_says() {
    let program = statistics();
    let function = program.function();
    let (mut on_critical_edges, mut in_memory) = (0, 0);
    for strategy in Strategy::ALL {
        for registers in 3..=12 {
            let target = Target::hardware(90).unwrap();
            let target = target.with_budget(File::R, registers);
            let options = Options::with_strategy(strategy);
            let allocation = allocate(&function, &target, &options).unwrap();
            let code = assemble(&program, &function, &allocation);
            on_critical_edges += code.len() - function.block_count();
            in_memory += allocation.memory.len();
            for input in [&[][..], &[7], &[3, 1, 4, 1, 5], &[0, 0, 0, 0, 0, 0, 0, 2]] {
                let expected = program.interpret(input);
                let output = execute(&code, function.entry(), input);
                assert_eq!(output, expected, "{strategy} in {registers} of {input:?}");
            }
        }
    }
    assert!(on_critical_edges > 0, "no edge needed a block of its own");
    assert!(in_memory > 0, "every input was in a register");
}
