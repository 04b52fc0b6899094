//! What a number means.

use crate::ast::Float;

/// A number token, understood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Literal {
    /// An integer of at most 64 bits.
    Int(u64),
    /// A floating-point number.
    Float(Float),
}

/// Reads a token that starts with a digit or is a decimal number.
pub(crate) fn parse(text: &str) -> Result<Literal, &'static str> {
    let bytes = text.as_bytes();
    // Most literals of real programs are short decimal integers.
    if bytes.len() <= 18 && bytes[0] != b'0' && bytes.iter().all(u8::is_ascii_digit) {
        let value = bytes.iter().fold(0, |v, b| v * 10 + u64::from(b - b'0'));
        return Ok(Literal::Int(value));
    }
    match bytes {
        [b'0', b'f' | b'F', ..] => {
            hex_float(&text[2..], 8, "0f").map(|bits| Literal::Float(Float::Single(bits as u32)))
        }
        [b'0', b'd' | b'D', ..] => {
            hex_float(&text[2..], 16, "0d").map(|bits| Literal::Float(Float::Double(bits)))
        }
        [b'0', b'x' | b'X', ..] => integer(&text[2..], 16),
        [b'0', b'b' | b'B', ..] => integer(&text[2..], 2),
        _ if is_decimal_float(text) => text
            .parse()
            .map(|value| Literal::Float(Float::Decimal(value)))
            .map_err(|_| "this is no number"),
        [b'0', b'0'..=b'9', ..] => integer(&text[1..], 8),
        _ => integer(text, 10),
    }
}

fn is_decimal_float(text: &str) -> bool {
    text.contains(['.', 'e', 'E'])
}

fn hex_float(digits: &str, length: usize, prefix: &str) -> Result<u64, &'static str> {
    if digits.len() != length || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(if prefix == "0f" {
            "a `0f` literal takes exactly 8 hexadecimal digits"
        } else {
            "a `0d` literal takes exactly 16 hexadecimal digits"
        });
    }
    u64::from_str_radix(digits, 16).map_err(|_| "this is no number")
}

fn integer(digits: &str, radix: u32) -> Result<Literal, &'static str> {
    let digits = digits.strip_suffix('U').unwrap_or(digits);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err("this is no number");
    }
    // ptxas takes up to two bits more and drops them; of binary digits it takes 64.
    let taken = |&value: &u128| value >> if radix == 2 { 64 } else { 66 } == 0;
    u128::from_str_radix(digits, radix)
        .ok()
        .filter(taken)
        .map(|value| Literal::Int(value as u64))
        .ok_or("this number does not fit 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_in_every_base() {
        for (text, value) in [
            ("0", 0),
            ("0U", 0),
            ("12", 12),
            ("12U", 12),
            ("0x1fU", 31),
            ("0XFF", 255),
            ("017", 15),
            ("0b101", 5),
            ("0B11U", 3),
            ("18446744073709551615", u64::MAX),
            ("0xFFFFFFFFFFFFFFFF", u64::MAX),
            ("18446744073709551616", 0),
            ("36893488147419103235", 3),
            ("0x12345678123456781", 0x2345_6781_2345_6781),
            ("07777777777777777777777", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(Literal::Int(value)), "{text}");
        }
    }

    #[test]
    fn floats_in_every_form() {
        for (text, value) in [
            ("0f3F800000", Float::Single(0x3f80_0000)),
            ("0F3f800000", Float::Single(0x3f80_0000)),
            ("0d3FF0000000000000", Float::Double(0x3ff0 << 48)),
            ("1.5", Float::Decimal(1.5)),
            ("1.", Float::Decimal(1.0)),
            (".25", Float::Decimal(0.25)),
            ("1e5", Float::Decimal(1e5)),
            ("0.0", Float::Decimal(0.0)),
            ("2.5e-3", Float::Decimal(2.5e-3)),
        ] {
            assert_eq!(parse(text), Ok(Literal::Float(value)), "{text}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for text in [
            "0f3F",
            "0d3FF",
            "0x",
            "0xZZ",
            "08",
            "12ab",
            "0b2",
            "0fGG800000",
            "1_000",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [
            "99999999999999999999".to_owned(),
            "0xFFFFFFFFFFFFFFFFF".to_owned(),
            format!("0b{}", "1".repeat(65)),
            "9".repeat(100),
        ] {
            assert_eq!(parse(&text), Err("this number does not fit 64 bits"));
        }
    }
}
