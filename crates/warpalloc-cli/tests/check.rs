//! `warpalloc check` as a workflow meets it.

#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use warpalloc_fuzz::image;

/// A folder with PTX in it.
struct Project(tempfile::TempDir);

/// A kernel that keeps `values` values live at once; mangled `sum(unsigned*)`.
fn kernel(values: usize, bounds: &str) -> String {
    let mut text = String::from(".version 9.0\n.target sm_90\n.address_size 64\n\n");
    text += &format!(
        ".visible .entry _Z3sumPj(\n\t.param .u64 p\n) {bounds}\n{{\n\
         \t.reg .b32 %r<{n}>;\n\t.reg .b64 %rd<2>;\n\t.loc 1 5 3\n\tld.param.u64 %rd1, [p];\n",
        n = values + 2
    );
    for i in 1..=values {
        text += &format!("\tld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    for i in 2..=values {
        text += &format!("\tmad.lo.u32 %r1, %r1, %r{i}, %r{};\n", values + 2 - i);
    }
    text += "\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n.file 1 \"src/sum.cu\"\n";
    text
}

impl Project {
    fn new() -> Project {
        let project = Project(tempfile::tempdir().unwrap());
        project.write("sum.ptx", &kernel(20, ".maxntid 256"));
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
        command.arg("check").args(args).current_dir(self.0.path());
        command.env_remove("GITHUB_WORKSPACE");
        command.env("GITHUB_STEP_SUMMARY", self.path("summary.md"));
        command.output().unwrap()
    }

    /// Without a ptxas, so that the figures are our own.
    fn check(&self, args: &[&str]) -> Output {
        self.run(&[&["--no-ptxas"], args].concat())
    }
}

fn out(run: &Output) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn code(run: &Output) -> Option<i32> {
    run.status.code()
}

#[test]
fn a_baseline_is_a_table_per_kernel() {
    let project = Project::new();
    let run = project.check(&["sum.ptx", "--update"]);
    assert_eq!(code(&run), Some(0), "{}", said(&run));
    assert_eq!(said(&run), "note: warpalloc.toml holds 1 kernel\n");
    let text = project.read("warpalloc.toml");
    let (_, table) = text.split_once("[[kernel]]\n").unwrap();
    assert_eq!(
        table,
        "name = \"sum(unsigned int*)\"\narch = \"sm_90\"\nfrom = \"warpalloc\"\nregisters = 22\n\
         spill_bytes = 0\nframe_bytes = 0\nshared_bytes = 0\nwarps = 64\nblock = 256\n"
    );
    let again = project.check(&["sum.ptx"]);
    assert_eq!(
        (code(&again), out(&again).as_str()),
        (Some(0), "1 kernel: nothing moved\n")
    );
}

#[test]
fn without_a_baseline_the_way_to_one_is_told() {
    let project = Project::new();
    let run = project.check(&["sum.ptx"]);
    assert_eq!(code(&run), Some(2));
    assert_eq!(
        said(&run),
        "error: there is no warpalloc.toml: `warpalloc check FILES --update` writes it\n"
    );
}

#[test]
fn a_kernel_made_to_spill_fails() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(60, ".maxntid 1024 .minnctapersm 2"));
    let run = project.check(&["sum.ptx"]);
    assert_eq!(code(&run), Some(1));
    let told = out(&run);
    assert!(told.starts_with("sum(unsigned int*) (sm_90)\n"), "{told}");
    let line = |figure: &str| told.lines().find(|l| l.trim().starts_with(figure)).unwrap();
    assert!(line("spill_bytes").contains(" 0 -> "), "{told}");
    assert!(line("spill_bytes").ends_with("  regression"), "{told}");
    assert!(told.ends_with("1 kernel: 1 regression\n"), "{told}");
}

#[test]
fn a_kernel_made_better_passes_with_a_word() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(10, ".maxntid 256"));
    let run = project.check(&["sum.ptx"]);
    assert_eq!(code(&run), Some(0));
    assert_eq!(
        out(&run),
        "sum(unsigned int*) (sm_90)\n  \
         registers            22 -> 12            -10  better\n\
         1 kernel: 1 better; --update writes it down\n"
    );
    let strict = project.check(&["sum.ptx", "--strict"]);
    assert_eq!(code(&strict), Some(1), "the baseline is out of date");
}

#[test]
fn tolerances_come_from_kernel_flag_and_file_in_that_order() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(24, ".maxntid 256"));
    let verdict = |args: &[&str]| {
        let run = project.check(&[&["sum.ptx"], args].concat());
        let told = out(&run);
        let line = told.lines().nth(1).unwrap().to_owned();
        (code(&run), line.rsplit_once("  ").unwrap().1.to_owned())
    };
    assert_eq!(verdict(&[]), (Some(1), "regression".to_owned()));
    let tolerated = |n: u32| (Some(0), format!("within the tolerance of {n}"));
    assert_eq!(verdict(&["--tolerance", "registers=4"]), tolerated(4));
    assert_eq!(verdict(&["--tolerance", "registers=20%"]), tolerated(4));
    let short = (Some(1), "regression, tolerance 3".to_owned());
    assert_eq!(verdict(&["--tolerance", "registers=3"]), short);
    let text = project.read("warpalloc.toml");
    project.write(
        "warpalloc.toml",
        &text.replace("registers = 0", "registers = \"19%\""),
    );
    assert_eq!(verdict(&[]), tolerated(4));
    assert_eq!(verdict(&["--tolerance", "registers=3"]), short);
    project.write(
        "warpalloc.toml",
        &format!("{text}tolerance.registers = 9\n"),
    );
    assert_eq!(verdict(&["--tolerance", "registers=3"]), tolerated(9));
}

#[test]
fn update_keeps_what_a_person_wrote() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    let text = project.read("warpalloc.toml");
    let text = text.replace("[[kernel]]\n", "# The hot one.\n[[kernel]]\n");
    let text = text.replace("registers = 22\n", "registers = 22 # was 40 in May\n");
    project.write(
        "warpalloc.toml",
        &format!("{text}tolerance.registers = 9\n"),
    );
    project.write("sum.ptx", &kernel(24, ".maxntid 256"));
    project.write("a.ptx", &kernel(8, "").replace("_Z3sumPj", "add"));
    let run = project.check(&[".", "--update"]);
    assert_eq!(code(&run), Some(0), "{}", said(&run));
    let text = project.read("warpalloc.toml");
    let (_, tables) = text.split_once("[[kernel]]\n").unwrap();
    assert_eq!(
        tables,
        "name = \"add\"\narch = \"sm_90\"\nfrom = \"warpalloc\"\nregisters = 10\n\
         spill_bytes = 0\nframe_bytes = 0\nshared_bytes = 0\n\n\
         # The hot one.\n[[kernel]]\nname = \"sum(unsigned int*)\"\narch = \"sm_90\"\n\
         from = \"warpalloc\"\nregisters = 26 # was 40 in May\n\
         spill_bytes = 0\nframe_bytes = 0\nshared_bytes = 0\nwarps = 64\nblock = 256\n\
         tolerance.registers = 9\n"
    );
}

#[test]
fn update_better_takes_over_nothing_worse() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    let before = project.read("warpalloc.toml");
    project.write("sum.ptx", &kernel(24, ".maxntid 256"));
    project.check(&["sum.ptx", "--update=better"]);
    assert_eq!(project.read("warpalloc.toml"), before);
    project.write("sum.ptx", &kernel(12, ".maxntid 256"));
    project.check(&["sum.ptx", "--update=better"]);
    let expected = before.replace("registers = 22", "registers = 14");
    assert_eq!(project.read("warpalloc.toml"), expected);
}

#[test]
fn new_kernels_must_not_spill_and_lost_ones_are_named() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(8, "").replace("_Z3sumPj", "add"));
    let run = project.check(&["sum.ptx"]);
    assert_eq!(code(&run), Some(0));
    assert_eq!(
        out(&run),
        "add (sm_90): new, registers 10, spill_bytes 0, frame_bytes 0, shared_bytes 0\n\
         sum(unsigned int*) (sm_90): gone\n\
         1 kernel: 1 new, 1 gone; --update writes it down\n"
    );
    let spilling = kernel(60, ".maxntid 1024 .minnctapersm 2").replace("_Z3sumPj", "add");
    project.write("sum.ptx", &spilling);
    let run = project.check(&["sum.ptx"]);
    assert_eq!(code(&run), Some(1));
    assert!(out(&run).contains("regression: more than a new kernel may take"));
}

#[test]
fn kernels_that_are_not_looked_at_are_not_gone() {
    let project = Project::new();
    project.write("a.ptx", &kernel(8, "").replace("_Z3sumPj", "add"));
    project.check(&[".", "--update"]);
    let run = project.check(&[".", "--kernel", "add"]);
    assert_eq!(out(&run), "1 kernel: nothing moved\n");
    project.check(&[".", "--kernel", "add", "--update"]);
    assert_eq!(
        project.read("warpalloc.toml").matches("[[kernel]]").count(),
        2
    );
}

#[test]
fn kernels_of_one_name_are_told_apart_by_file() {
    let project = Project::new();
    fs::create_dir(project.path("more")).unwrap();
    project.write("more/other.ptx", &kernel(8, ""));
    project.write("more/same.ptx", &kernel(8, ""));
    project.check(&[".", "--update"]);
    let text = project.read("warpalloc.toml");
    assert!(
        text.contains("file = \"other.ptx\"") && text.contains("file = \"sum.ptx\""),
        "{text}"
    );
    assert_eq!(
        text.matches("[[kernel]]").count(),
        2,
        "same figures, one table"
    );
    assert_eq!(out(&project.check(&["."])), "2 kernels: nothing moved\n");
}

#[test]
fn mistakes_in_the_baseline_are_named_with_their_place() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    let good = project.read("warpalloc.toml");
    let wrong = |from: &str, to: &str| {
        project.write("warpalloc.toml", &good.replace(from, to));
        let run = project.check(&["sum.ptx"]);
        assert_eq!(code(&run), Some(2), "{to}");
        said(&run)
    };
    let at = |text: &str| {
        let (before, _) = good.split_once(text).unwrap();
        before.matches('\n').count() + 1
    };
    let line = at("registers = 22");
    assert_eq!(
        wrong("registers = 22", "registers = -1"),
        format!("error: warpalloc.toml:{line}:13: `registers` is a count\n")
    );
    assert_eq!(
        wrong("registers = 22", "regs = 23"),
        format!(
            "error: warpalloc.toml:{line}:8: `regs`: the figures are registers, spill_bytes, \
             frame_bytes, local_accesses, shared_bytes, warps\n"
        )
    );
    assert!(wrong("schema = 1", "schema = 7").contains("schema 7 is not known"));
    assert!(wrong("arch = \"sm_90\"\n", "").contains("a kernel has a `name` and an `arch`"));
    assert!(wrong("registers = 22", "registers = [").starts_with("error: warpalloc.toml:"));
}

#[test]
fn github_gets_annotations_and_a_summary() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(24, ".maxntid 256"));
    let run = project.check(&["sum.ptx", "--github"]);
    assert_eq!(code(&run), Some(1));
    let annotation = out(&run).lines().last().unwrap().to_owned();
    assert_eq!(
        annotation,
        "::error file=src/sum.cu,line=5,title=a kernel takes more::sum(unsigned int*) (sm_90): \
         registers 22 -> 26 (regression)"
    );
    assert_eq!(
        project.read("summary.md"),
        "### ❌ warpalloc check: 1 kernel: 1 regression\n\n\
         Where this is meant, `warpalloc check` with `--update` writes `` warpalloc.toml `` anew.\n\n\
         | kernel | figure | was | is | change | |\n|---|---|---:|---:|---:|---|\n\
         | `` sum(unsigned int*) (sm_90) `` | registers | 22 | 26 | +4 | regression |\n\n"
    );
    // A new kernel is no failure.
    fs::remove_file(project.path("summary.md")).unwrap();
    project.write(
        "sum.ptx",
        &kernel(20, ".maxntid 256").replace("sumPj", "newPj"),
    );
    project.check(&["sum.ptx", "--github"]);
    assert_eq!(
        project.read("summary.md"),
        "### ✅ warpalloc check: 1 kernel: 1 new, 1 gone; --update writes it down\n\n\
         - `` new(unsigned int*) (sm_90) `` is not in the baseline\n- `` sum(unsigned int*) `` is gone\n"
    );
}

/// A step that works in a folder of the repository: annotations need paths from its root.
#[test]
fn annotations_are_placed_from_the_root_of_the_repository() {
    let project = Project::new();
    let text = kernel(20, ".maxntid 256");
    let (plain, _) = text.split_once("\t.loc 1 5 3\n").unwrap();
    let rest = text.split_once("\t.loc 1 5 3\n").unwrap().1;
    fs::create_dir(project.path("sub")).unwrap();
    project.write("sub/sum.ptx", &format!("{plain}{rest}"));
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
        command.args(["check", "--no-ptxas", "."]).args(args);
        command.current_dir(project.path("sub"));
        command.env("GITHUB_WORKSPACE", project.0.path());
        command.env("GITHUB_STEP_SUMMARY", project.path("summary.md"));
        command.output().unwrap()
    };
    run(&["--update"]);
    let table = project.read("sub/warpalloc.toml");
    let table = table.replace("registers = 22", "registers = 20");
    project.write("sub/warpalloc.toml", &table);
    let told = out(&run(&["--github"]));
    let annotation = told.lines().last().unwrap();
    assert!(
        annotation.starts_with("::error file=sub/sum.ptx,line="),
        "{annotation}"
    );
}

#[test]
fn sarif_names_rule_place_and_kernel() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    project.write("sum.ptx", &kernel(24, ".maxntid 256"));
    project.check(&["sum.ptx", "--sarif", "out.sarif"]);
    let value: Value = serde_json::from_str(&project.read("out.sarif")).unwrap();
    assert_eq!(value["version"], "2.1.0");
    let run = &value["runs"][0];
    assert_eq!(
        run["tool"]["driver"]["rules"].as_array().map(Vec::len),
        Some(6)
    );
    let result = &run["results"][0];
    assert_eq!(
        (&result["ruleId"], &result["level"]),
        (&json!("registers"), &json!("error"))
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/sum.cu");
    assert_eq!(place["region"]["startLine"], 5);
}

#[test]
fn json_holds_every_kernel() {
    let project = Project::new();
    project.check(&["sum.ptx", "--update"]);
    let run = project.check(&["sum.ptx", "--json"]);
    let value: Value = serde_json::from_str(&out(&run)).unwrap();
    assert_eq!(
        (&value["schema"], &value["failed"]),
        (&json!(1), &json!(false))
    );
    let kernel = &value["kernels"][0];
    assert_eq!(kernel["symbol"], "_Z3sumPj");
    assert_eq!(kernel["figures"]["registers"], 22);
    assert_eq!(kernel["moves"][0]["verdict"], "same");
    assert_eq!(kernel["source"], json!({ "file": "src/sum.cu", "line": 5 }));
}

#[test]
fn cubins_fatbins_and_libraries_are_read() {
    let project = Project::new();
    let fatbin = image::fatbin(&[image::entry(2, 90, 0x11, &image::cubin(), 0)]);
    let part = image::part(".nv_fatbin", image::PROGBITS, 0, fatbin.clone());
    fs::write(project.path("k.cubin"), image::cubin()).unwrap();
    fs::write(project.path("k.fatbin"), &fatbin).unwrap();
    fs::write(project.path("libk.so.1"), image::elf(62, 0, 0, &[part])).unwrap();
    fs::write(project.path("host.o"), image::elf(62, 0, 0, &[])).unwrap();
    fs::remove_file(project.path("sum.ptx")).unwrap();
    let run = project.check(&[".", "--update"]);
    assert_eq!(code(&run), Some(0), "{}", said(&run));
    let text = project.read("warpalloc.toml");
    let (_, table) = text.split_once("[[kernel]]\n").unwrap();
    assert!(
        table.starts_with("name = \"k\"\narch = \"sm_90\"\nfrom = \"cubin\"\nregisters = 24\n"),
        "{table}"
    );
    let older = image::elf(190, 7, 0x0050_0550, &image::cubin_parts());
    fs::write(project.path("older.cubin"), older).unwrap();
    let run = project.check(&[".", "--sm", "90"]);
    assert_eq!(out(&run), "1 kernel: nothing moved\n");
    let run = project.check(&["older.cubin", "--sm", "90"]);
    assert_eq!(
        said(&run),
        "error: older.cubin: no cubin for sm_90; there are sm_80\n"
    );
    for file in ["k.cubin", "k.fatbin", "libk.so.1"] {
        let run = project.check(&[file]);
        assert_eq!(out(&run), "1 kernel: nothing moved\n", "{file}");
    }
}

#[test]
fn ptx_in_a_fatbin_without_cubins_is_measured() {
    let project = Project::new();
    let text = format!("{}\0", kernel(20, ".maxntid 256"));
    let fatbin = image::fatbin(&[image::entry(1, 90, 0x11, text.as_bytes(), 0)]);
    fs::write(project.path("k.fatbin"), fatbin).unwrap();
    project.check(&["sum.ptx", "--update"]);
    assert_eq!(
        out(&project.check(&["k.fatbin"])),
        "1 kernel: nothing moved\n"
    );
}

#[test]
fn a_kernel_that_is_not_understood_is_named() {
    let project = Project::new();
    let text = kernel(4, "").replace("\tret;", "\tfrobnicate.b32 %r1;\n\tret;");
    project.write("sum.ptx", &text);
    let run = project.check(&["sum.ptx", "--update"]);
    assert!(
        said(&run).starts_with("warning: sum.ptx: `sum(unsigned int*)` is not measured: "),
        "{}",
        said(&run)
    );
}

#[test]
fn ptxas_gives_the_figures_where_it_is() {
    let Some(ptxas) = ptxas::ptxas() else { return };
    let project = Project::new();
    let name = ptxas.to_str().unwrap();
    let run = project.run(&["sum.ptx", "--update", "--ptxas", name]);
    assert_eq!(code(&run), Some(0), "{}", said(&run));
    let text = project.read("warpalloc.toml");
    assert!(
        text.contains("from = \"ptxas\"") && text.contains("\nptxas = \""),
        "{text}"
    );
    assert!(text.contains("local_accesses = 0"), "{text}");
    let same = project.run(&["sum.ptx", "--ptxas", name]);
    assert_eq!(out(&same), "1 kernel: nothing moved\n");
    let cap = project.run(&["sum.ptx", "--ptxas", name, "--ptxas-option=-O0"]);
    assert_eq!(code(&cap), Some(1), "{}", out(&cap));
    // Figures of another origin are not compared.
    let ours = project.check(&["sum.ptx"]);
    assert_eq!(code(&ours), Some(2));
    assert_eq!(
        said(&ours),
        "error: the figures of `sum(unsigned int*)` in warpalloc.toml are from ptxas, and these \
         are from warpalloc: name a ptxas with --ptxas FILE\n"
    );
}

#[test]
fn a_ptxas_that_is_not_there_is_named() {
    let project = Project::new();
    let run = project.run(&["sum.ptx", "--update", "--ptxas", "no/ptxas"]);
    assert_eq!(code(&run), Some(2));
    assert_eq!(
        said(&run),
        "error: --ptxas no/ptxas: there is no such program\n"
    );
}
