//! Words: nothing panics, encoding is the identity, renamed registers read back.

use warpalloc_sass::hazard::check;
use warpalloc_sass::isa::{Access, File, Latency, Sm};
use warpalloc_sass::loops::Loops;
use warpalloc_sass::pressure::Pressure;
use warpalloc_sass::{Cfg, Code, DecodeError, Inst, Links, Liveness, decode};

/// A small generator with a fixed seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    fn word(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn sm(number: u32) -> Sm {
    Sm::new(number).unwrap()
}

fn inst(word: u128, number: u32) -> Inst {
    decode(word, sm(number)).unwrap()
}

/// Words that ptxas wrote, with nvdisasm's text, and what is read from them. A definition is
/// written `=R4`, a run from R4 to R7 `R4..8`.
const KNOWN: &[(u32, u128, &str, &str)] = &[
    (
        90,
        0x002f_e200_0f8e_0200_0000_0004_1100_7c24,
        "IMAD R0, R17, UR4, R0",
        "IMAD =R0, R17, UR4, R0",
    ),
    (
        90,
        0x000f_e400_0f8e_00ff_0000_0005_ff13_7e24,
        "IMAD.U32 R19, RZ, RZ, UR5",
        "IMAD =R19, UR5",
    ),
    (
        90,
        0x000f_c800_0bf0_6070_0000_0006_1200_7c0c,
        "ISETP.GE.U32.AND P0, PT, R18, UR6, PT",
        "ISETP R18, UR6, =P0",
    ),
    (
        90,
        0x000f_da00_0bf0_6300_0000_0007_1300_7c0c,
        "ISETP.GE.AND.EX P0, PT, R19, UR7, PT, P0",
        "ISETP R19, UR7, =P0, P0",
    ),
    (
        80,
        0x000e_a800_0c1e_9b00_0000_0004_0602_7981,
        "LDG.E.64.CONSTANT R2, [R6.64]",
        "LDG =R2..4, R6..8, UR4..6",
    ),
    (
        80,
        0x0016_2000_0c10_1100_0000_0024_1a1a_7980,
        "LD.E.U8 R26, [R26.64]",
        "LD =R26, R26..28, UR36..38",
    ),
    (
        90,
        0x0005_e800_0c10_f3a4_0000_0007_0400_79a6,
        "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR36][R4.64], R7",
        "REDG R4..6, R7, UR36..38",
    ),
    (
        90,
        0x010f_e200_0008_1014_0000_0008_0414_723c,
        "HMMA.1688.F32.TF32 R20, R4, R8, R20",
        "HMMA =R20..24, R4..8, R8..10, R20..24",
    ),
    (
        80,
        0x004f_e600_0060_4518_0000_0210_1418_7237,
        "IMMA.SP.16864.U8.S8 R24, R20.ROW, R16.COL, R24, R2, 0x0",
        "IMMA =R24..28, R20..24, R16..20, R24..28, R2",
    ),
    (
        90,
        0x000e_0000_080e_0500_0000_0028_0000_79c8,
        "USETMAXREG.DEALLOC.CTAPOOL 0x28",
        "USETMAXREG",
    ),
    (
        90,
        0x000f_e200_0fff_e03f_0000_000e_0c14_7297,
        "UIADD3.64 UR20, UR12, UR14, URZ",
        "UIADD3 =UR20..22, UR12..14, UR14..16",
    ),
    (
        90,
        0x000f_e200_0fff_e03f_0000_0200_0e0c_7897,
        "UIADD3.64 UR12, UR14, 0x200, URZ",
        "UIADD3 =UR12..14, UR14..16",
    ),
    (
        90,
        0x0040_a600_0000_2008_0000_0024_1808_723f,
        "DMMA.16x8x8 R8, R24, R36, R8",
        "DMMA =R8..16, R24..32, R36..40, R8..16",
    ),
    (
        90,
        0x0043_6200_0010_e506_0000_0004_0218_738b,
        "ATOM.E.CAS.64.STRONG.GPU P0, R24, [R2], R4, R6",
        "ATOM =R24..26, R2..4, R4..6, R6..8, =P0",
    ),
];

#[test]
fn known_words_read_as_their_text() {
    for &(number, word, text, read) in KNOWN {
        assert_eq!(inst(word, number).to_string(), read, "{text}");
    }
}

#[test]
fn atomic_types_differ_between_sms() {
    // Type 3 is F32.FTZ.RN up to sm_89 and S64 from sm_90 on.
    let word = 0x000f_e800_0c10_e187_0000_0011_0400_798e_u128;
    let word = word & !(0xf << 73) | 3 << 73 | 1 << 91;
    let data = |number| {
        let inst = inst(word, number);
        let data = inst.operands().iter().find(|operand| operand.first == 17);
        (inst.mnemonic(), data.unwrap().width)
    };
    assert_eq!(data(80), ("RED", 1));
    assert_eq!(data(90), ("REDG", 2));
}

#[test]
fn latency_of_double_precision_depends_on_the_sm() {
    // DADD R2, R2, R8
    let word = 0x000e_4800_0000_0008_0000_0000_0202_7229;
    assert_eq!(inst(word, 80).latency(), Latency::Variable);
    assert_eq!(inst(word, 90).latency(), Latency::Fixed);
}

#[test]
fn an_unknown_opcode_is_named() {
    let error = decode(0xfff, sm(90)).unwrap_err();
    assert_eq!(error.mnemonic(), None);
    assert!(
        error.to_string().contains("unknown opcode 0xfff"),
        "{error}"
    );
    // A mnemonic that is known, in a form that is not: MOV with a third source.
    let error = decode(0x402, sm(90)).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::Form {
                mnemonic: "MOV",
                opcode: 0x402,
                ..
            }
        ),
        "{error}"
    );
    // STS.128 with size 7.
    let word = 0x0001_e800_0000_0e00_0000_001c_0200_7388;
    let error = decode(word, sm(90)).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::Width {
                mnemonic: "STS",
                ..
            }
        ),
        "{error}"
    );
    let error = Code::decode(&[0xff; 32], 90).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("at 0x0000: unknown opcode 0xfff"),
        "{error}"
    );
}

#[test]
fn a_run_of_registers_stays_in_its_file() {
    // LDG.E.64 of R254, which would end in RZ.
    let word = KNOWN[4].1 & !(0xff << 16) | 254 << 16;
    let error = decode(word, sm(80)).unwrap_err();
    assert!(
        matches!(error, DecodeError::Range { width: 2, .. }),
        "{error}"
    );
}

/// Words that decode: random ones with the opcodes of all rows tried.
fn decodable(random: &mut Random, number: u32) -> Vec<Inst> {
    let mut found = Vec::new();
    for opcode in 0..0x1000 {
        for _ in 0..24 {
            let word = random.word() & !0xfff | opcode;
            found.extend(decode(word, sm(number)));
        }
    }
    found
}

#[test]
fn random_words_never_panic_and_encode_to_themselves() {
    let mut random = Random(1);
    for number in [75, 80, 86, 87, 89, 90] {
        let found = decodable(&mut random, number);
        assert!(found.len() > 5_000, "{} words decode", found.len());
        for inst in found {
            let again = decode(inst.word(), inst.sm()).unwrap();
            assert_eq!(again, inst);
            assert_eq!(inst.with_control(inst.control()).word(), inst.word());
        }
    }
    for _ in 0..200_000 {
        let word = random.word();
        if let Ok(inst) = decode(word, sm(90)) {
            assert_eq!(inst.word(), word);
        }
    }
}

#[test]
fn mutated_code_never_panics() {
    let mut random = Random(2);
    for &(number, word, ..) in KNOWN {
        for _ in 0..20_000 {
            let mut word = word;
            for _ in 0..=random.below(4) {
                word ^= 1 << random.below(128);
            }
            let bytes = word.to_le_bytes();
            if let Ok(code) = Code::decode(&bytes, number) {
                assert_eq!(code.encode(), bytes);
            }
        }
    }
}

#[test]
fn random_code_never_panics_in_an_analysis() {
    let mut random = Random(5);
    let found = decodable(&mut random, 90);
    let mut graphs = 0;
    for _ in 0..3_000 {
        let length = 1 + random.below(40);
        let mut bytes = Vec::new();
        for at in 0..length {
            let mut word = found[random.below(found.len())].word();
            // Some branches and calls that stay in the code, and an end.
            if random.below(4) == 0 {
                let units = ((random.below(length) as i128 - at as i128 - 1) * 4) as u128;
                let fields = (units & 0xff) << 16 | (units >> 8 & 0xffff_ffff_ffff) << 34;
                let opcode = [0x947, 0x944][random.below(2)];
                word = opcode | word & 0xf000 | fields | 7 << 87;
            }
            if at + 1 == length {
                word = 0x794d | 7 << 87;
            }
            bytes.extend(word.to_le_bytes());
        }
        let code = Code::decode(&bytes, 90).unwrap();
        let mut links = Links::default();
        for at in 0..length {
            links
                .tables
                .insert(at * 16, vec![random.below(length) * 16]);
        }
        links.entries.push(random.below(length) * 16);
        let Ok(cfg) = Cfg::build(&code, &links) else {
            continue;
        };
        graphs += 1;
        let liveness = Liveness::compute(&code, &cfg);
        for file in File::ALL {
            Pressure::compute(&code, &cfg, &liveness, file);
        }
        Loops::compute(&cfg);
        check(&code, &cfg);
    }
    assert!(graphs > 300, "{graphs} graphs");
}

#[test]
fn a_renamed_operand_reads_back_and_nothing_else_changes() {
    let mut random = Random(3);
    let mut renamed = 0;
    for number in [75, 80, 90] {
        for inst in decodable(&mut random, number) {
            for (index, operand) in inst.operands().iter().enumerate() {
                if operand.field.is_none() {
                    assert!(inst.with_register(index, 0).is_err());
                    continue;
                }
                let room = operand.file.registers() - operand.width + 1;
                let first = random.below(usize::from(room)) as u8;
                let changed = inst.with_register(index, first).unwrap();
                renamed += 1;
                for (other, (before, after)) in
                    inst.operands().iter().zip(changed.operands()).enumerate()
                {
                    let mut expected = *before;
                    if other == index || before.field == operand.field {
                        expected.first = first;
                    }
                    assert_eq!(*after, expected, "{inst} to {changed}");
                }
                assert_eq!(changed.guard(), inst.guard());
                assert_eq!(changed.flow(), inst.flow());
            }
        }
    }
    assert!(renamed > 20_000, "{renamed} operands renamed");
}

#[test]
fn operands_do_not_overlap_fields() {
    // A field belongs to one operand, or to one that is read and written.
    let mut random = Random(4);
    for inst in decodable(&mut random, 90) {
        for (index, operand) in inst.operands().iter().enumerate() {
            let Some(at) = operand.field else { continue };
            for other in &inst.operands()[index + 1..] {
                let Some(other_at) = other.field else {
                    continue;
                };
                let apart =
                    at + operand.field_bits <= other_at || other_at + other.field_bits <= at;
                assert!(
                    apart || other.access != operand.access || at == other_at,
                    "{inst}"
                );
                assert!(apart || other.access == Access::Use || operand.access == Access::Use);
            }
            if operand.file == File::R {
                assert_eq!(operand.field_bits, 8);
            }
        }
    }
}
