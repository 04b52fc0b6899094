//! A small compiler that targets PTX through the library: functions of 32-bit integers with
//! variables, expressions, `if`, `while`, calls and recursion.
//!
//! Variables are virtual registers that are assigned again and again; the library takes them
//! apart. Each instruction has a number of the compiler's own, its payload, and the walk over
//! the allocation says what to print. Registers of PTX are private to a function, so that a
//! call clobbers none.
//!
//! ```sh
//! cargo run -p warpalloc --example toy_compiler -- FILE REGISTERS STRATEGY > FILE.ptx
//! cargo run -p warpalloc --example toy_compiler -- --samples FOLDER
//! ```

mod interpret;
mod language;
mod samples;
#[cfg(test)]
mod tests;

use language::{Expr, Operator, Procedure, Program, Stmt, parse};
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write;
use warpalloc::allocation::{Allocation, Edit, Frame, Label, SlotAddr, Step};
use warpalloc::function::{Block, Builder, Clobbers, Function, Inst, VReg};
use warpalloc::target::{Class, File, PReg, Target};
use warpalloc::{Options, Strategy, allocate};

/// An instruction of PTX: its text, with `{0}`, `{1}` and so on for the operands and `{->0}`
/// and `{->1}` for the labels of successors.
type Instr = String;

struct Lowering<'a> {
    builder: Builder,
    instrs: Vec<Instr>,
    variables: HashMap<&'a str, VReg>,
    block: Block,
}

impl<'a> Lowering<'a> {
    fn new(procedure: &'a Procedure) -> Lowering<'a> {
        let mut builder = Builder::new(procedure.name.clone());
        let mut lowering = Lowering {
            block: builder.block(),
            builder,
            instrs: Vec::new(),
            variables: HashMap::new(),
        };
        for (number, name) in procedure.params.iter().enumerate() {
            let variable = lowering.builder.vreg(Class::R32);
            lowering.variables.insert(name, variable);
            lowering.text(&format!("mov.b32 {{0}}, a{number};"), &[variable], &[]);
        }
        let mut names = Vec::new();
        assigned(&procedure.body, &mut names);
        for name in names {
            if !lowering.variables.contains_key(name) {
                let zero = lowering.number(0);
                let variable = lowering.builder.vreg(Class::R32);
                lowering.variables.insert(name, variable);
                lowering.assign(variable, zero);
            }
        }
        lowering
    }

    fn number_of(&mut self, instr: Instr) -> u32 {
        self.instrs.push(instr);
        self.instrs.len() as u32 - 1
    }

    /// Appends an instruction without effect on memory.
    fn text(&mut self, text: &str, results: &[VReg], inputs: &[VReg]) {
        let payload = self.number_of(text.to_owned());
        let mut inst = self.builder.inst(self.block, text).payload(payload);
        if results.len() == 1 && inputs.is_empty() && !text.contains(", a") {
            inst = inst.remat(1);
        }
        inst = results.iter().fold(inst, |inst, &vreg| inst.def(vreg));
        inputs.iter().fold(inst, |inst, &vreg| inst.use_(vreg));
    }

    fn assign(&mut self, to: VReg, from: VReg) {
        let payload = self.number_of("mov.b32 {0}, {1};".to_owned());
        self.builder.copy(self.block, to, from).payload(payload);
    }

    fn number(&mut self, number: i32) -> VReg {
        let vreg = self.builder.vreg(Class::R32);
        self.text(&format!("mov.b32 {{0}}, {number};"), &[vreg], &[]);
        vreg
    }

    fn value(&mut self, expr: &'a Expr) -> VReg {
        match expr {
            Expr::Number(number) => self.number(*number),
            Expr::Variable(name) => match self.variables.get(name.as_str()) {
                Some(&variable) => variable,
                None => self.number(0),
            },
            Expr::Binary(operator, a, b) => {
                let opcode = match operator {
                    Operator::Add => "add.s32",
                    Operator::Sub => "sub.s32",
                    Operator::Mul => "mul.lo.s32",
                    Operator::And => "and.b32",
                    Operator::Xor => "xor.b32",
                    Operator::Less | Operator::Equal => {
                        let condition = self.condition(expr);
                        let vreg = self.builder.vreg(Class::R32);
                        self.text("selp.b32 {0}, 1, 0, {1};", &[vreg], &[condition]);
                        return vreg;
                    }
                };
                let inputs = self.inputs([&**a, &**b]);
                let vreg = self.builder.vreg(Class::R32);
                self.text(&format!("{opcode} {{0}}, {{1}}, {{2}};"), &[vreg], &inputs);
                vreg
            }
            Expr::Call(name, args) => {
                let inputs = self.inputs(args);
                let places: Vec<String> = (1..=args.len()).map(|n| format!("{{{n}}}")).collect();
                let text = format!("call ({{0}}), toy_{name}, ({});", places.join(", "));
                let payload = self.number_of(text);
                let vreg = self.builder.vreg(Class::R32);
                let call = self.builder.call(self.block, "call").payload(payload);
                let call = call.clobbers(Clobbers::None).def(vreg);
                inputs.iter().fold(call, |call, &input| call.use_(input));
                vreg
            }
        }
    }

    fn inputs(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) -> Vec<VReg> {
        exprs.into_iter().map(|expr| self.value(expr)).collect()
    }

    fn condition(&mut self, expr: &'a Expr) -> VReg {
        let (test, inputs) = match expr {
            Expr::Binary(Operator::Less, a, b) => ("lt", self.inputs([&**a, &**b])),
            Expr::Binary(Operator::Equal, a, b) => ("eq", self.inputs([&**a, &**b])),
            other => {
                let value = self.value(other);
                ("ne", vec![value, self.number(0)])
            }
        };
        let predicate = self.builder.vreg(Class::PRED);
        let text = format!("setp.{test}.s32 {{0}}, {{1}}, {{2}};");
        self.text(&text, &[predicate], &inputs);
        predicate
    }

    fn jump(&mut self, to: Block) {
        let payload = self.number_of("bra {->0};".to_owned());
        self.builder.jump(self.block, to, &[]).payload(payload);
    }

    fn branch(&mut self, condition: &'a Expr, yes: Block, no: Block) {
        let predicate = self.condition(condition);
        self.builder.edge(self.block, yes, &[]);
        self.builder.edge(self.block, no, &[]);
        let payload = self.number_of("@{0} bra {->0};\n\tbra {->1};".to_owned());
        let branch = self.builder.branch(self.block, "bra").payload(payload);
        branch.use_(predicate);
    }

    fn stmts(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Assign(name, value) => {
                    let value = self.value(value);
                    self.assign(self.variables[name.as_str()], value);
                }
                Stmt::While(condition, body) => {
                    let blocks = [(); 3].map(|()| self.builder.block());
                    let [head, inside, behind] = blocks;
                    self.jump(head);
                    self.block = head;
                    self.branch(condition, inside, behind);
                    self.block = inside;
                    self.stmts(body);
                    self.jump(head);
                    self.block = behind;
                }
                Stmt::If(condition, then, otherwise) => {
                    let blocks = [(); 3].map(|()| self.builder.block());
                    self.branch(condition, blocks[0], blocks[1]);
                    for (block, stmts) in blocks.into_iter().zip([then, otherwise]) {
                        self.block = block;
                        self.stmts(stmts);
                        self.jump(blocks[2]);
                    }
                    self.block = blocks[2];
                }
                Stmt::Return(value) => {
                    let value = self.value(value);
                    self.returns(value);
                    // The rest is never reached.
                    self.block = self.builder.block();
                }
            }
        }
    }

    fn returns(&mut self, value: VReg) {
        let payload = self.number_of("mov.b32 rv, {0};\n\tret;".to_owned());
        let inst = self.builder.ret(self.block, "ret").payload(payload);
        inst.use_(value);
    }
}

fn assigned<'a>(stmts: &'a [Stmt], names: &mut Vec<&'a str>) {
    for stmt in stmts {
        match stmt {
            Stmt::Assign(name, _) => names.push(name),
            Stmt::While(_, body) => assigned(body, names),
            Stmt::If(_, then, otherwise) => {
                assigned(then, names);
                assigned(otherwise, names);
            }
            Stmt::Return(_) => {}
        }
    }
}

/// What of PTX one procedure is printed with.
struct Printer<'a> {
    function: &'a Function,
    instrs: &'a [Instr],
    frame: Frame,
}

fn name(reg: PReg) -> String {
    match reg.file {
        File::P => format!("%P{}", reg.unit),
        _ => format!("%R{}", reg.unit),
    }
}

fn label(label: Label) -> String {
    match label {
        Label::Block(block) => format!("L{}", block.as_u32()),
        Label::Edge(block, succ) => format!("E{}_{succ}", block.as_u32()),
    }
}

impl Printer<'_> {
    fn instruction(&self, inst: Inst, regs: &[PReg], labels: &[String]) -> String {
        let text = self.instrs[self.function.inst(inst).payload as usize].clone();
        let names = (0..)
            .zip(regs)
            .map(|(n, &reg)| (format!("{{{n}}}"), name(reg)));
        let labels = (0..)
            .zip(labels)
            .map(|(n, l)| (format!("{{->{n}}}"), l.clone()));
        let places = names.chain(labels);
        places.fold(text, |text, (place, name)| text.replace(&place, &name))
    }

    /// The lines of an edit; values here take one register.
    fn edit(&self, edit: &Edit) -> Vec<String> {
        let address = |slot: SlotAddr| {
            let offset = slot.offset + self.frame.size(slot.space) as i32;
            format!("[frame+{offset}]")
        };
        let each =
            |width: u8, line: &dyn Fn(usize) -> String| (0..width.into()).map(line).collect();
        let ty = |reg: PReg| if reg.file == File::P { "pred" } else { "b32" };
        match *edit {
            Edit::Move { to, from, width } => each(width, &|i| {
                let (ty, to, from) = (ty(to), name(to.offset(i)), name(from.offset(i)));
                format!("mov.{ty} {to}, {from};")
            }),
            Edit::Swap { a, b, width } => (0..usize::from(width))
                .flat_map(|i| {
                    let (ty, a, b) = (ty(a), name(a.offset(i)), name(b.offset(i)));
                    [(&a, &b), (&b, &a), (&a, &b)]
                        .map(|(to, with)| format!("xor.{ty} {to}, {to}, {with};"))
                })
                .collect(),
            Edit::Transfer { to, from, regs } => each(regs, &|i| {
                let (to_name, from_name) = (name(to.offset(i)), name(from.offset(i)));
                match to.file {
                    File::P => format!("setp.ne.b32 {to_name}, {from_name}, 0;"),
                    _ => format!("selp.b32 {to_name}, 1, 0, {from_name};"),
                }
            }),
            Edit::Store { to, from, width } => each(width, &|i| {
                let offset = to.offset + 4 * i as i32;
                let address = address(SlotAddr { offset, ..to });
                format!("st.local.b32 {address}, {};", name(from.offset(i)))
            }),
            Edit::Reload { to, from, width } => each(width, &|i| {
                let offset = from.offset + 4 * i as i32;
                let address = address(SlotAddr { offset, ..from });
                format!("ld.local.b32 {}, {address};", name(to.offset(i)))
            }),
            Edit::Recompute { inst, ref regs } => vec![self.instruction(inst, regs, &[])],
        }
    }

    fn body(&self, allocation: &Allocation) -> String {
        let mut out = String::new();
        let walk = allocation.walk(self.function);
        for here in walk.labels() {
            let _ = writeln!(out, "{}:", label(here));
            let labels: Vec<String> = match here {
                Label::Block(block) => (0..self.function.succs(block).len() as u32)
                    .map(|succ| label(walk.successor(block, succ)))
                    .collect(),
                Label::Edge(..) => Vec::new(),
            };
            for step in walk.steps(here) {
                let lines = match step {
                    Step::Inst(inst, places) => {
                        // No operand of this compiler may be in memory.
                        let regs = places.registers().unwrap_or_default();
                        vec![self.instruction(inst, regs, &labels)]
                    }
                    Step::Edit(edit) => self.edit(edit),
                };
                for line in lines {
                    let _ = writeln!(out, "\t{line}");
                }
            }
            if let Label::Edge(block, succ) = here {
                let to = self.function.succs(block)[succ as usize].block;
                let _ = writeln!(out, "\tbra {};", label(Label::Block(to)));
            }
        }
        out
    }
}

/// Runs `main` in each thread, on the thread's number.
const KERNEL: &str = include_str!("kernel.ptx");

/// The PTX of `program`, each procedure in at most `registers` registers.
fn compile(
    program: &Program,
    registers: usize,
    strategy: Strategy,
) -> Result<String, Box<dyn Error>> {
    let target = Target::hardware(90)?.with_budget(File::R, registers);
    let options = Options::with_strategy(strategy);
    let mut out = ".version 8.0\n.target sm_90\n.address_size 64\n\n".to_owned();
    let signature = |procedure: &Procedure| {
        let params: Vec<String> = (0..procedure.params.len())
            .map(|number| format!(".reg .b32 a{number}"))
            .collect();
        let name = &procedure.name;
        format!(".func (.reg .b32 rv) toy_{name}({})", params.join(", "))
    };
    for procedure in program {
        writeln!(out, "{};", signature(procedure))?;
    }
    for procedure in program {
        let mut lowering = Lowering::new(procedure);
        lowering.stmts(&procedure.body);
        let zero = lowering.number(0);
        lowering.returns(zero);
        let function = lowering.builder.finish();
        let allocation = allocate(&function, &target, &options)?;
        let printer = Printer {
            function: &function,
            instrs: &lowering.instrs,
            frame: allocation.frame,
        };
        writeln!(out, "\n{}\n{{", signature(procedure))?;
        writeln!(out, "\t.reg .b32 %R<{registers}>;\n\t.reg .pred %P<7>;")?;
        if allocation.frame.local > 0 {
            writeln!(
                out,
                "\t.local .align 16 .b8 frame[{}];",
                allocation.frame.local
            )?;
        }
        writeln!(out, "{}}}", printer.body(&allocation))?;
    }
    out.push('\n');
    out.push_str(KERNEL);
    Ok(out)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [flag, folder] if flag == "--samples" => samples::write(folder.as_ref()),
        [file, registers, strategy] => {
            let program = parse(&std::fs::read_to_string(file)?)?;
            let strategy = Strategy::named(strategy).ok_or("there is no such strategy")?;
            print!("{}", compile(&program, registers.parse()?, strategy)?);
            Ok(())
        }
        _ => Err("expected FILE REGISTERS STRATEGY, or --samples FOLDER".into()),
    }
}
