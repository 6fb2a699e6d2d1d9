//! Numbers with what they are of: `1 sample`, `2 samples`.

/// `number` and the noun `one` after it, in the plural where it is not one.
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {}", noun(number, one))
}

/// The noun `one` as it stands after `number`: `process`, `processes`.
pub fn noun(number: impl TryInto<u64>, one: &str) -> String {
    let plural = match one.ends_with('s') || one.ends_with('x') {
        true => "es",
        false => "s",
    };
    match number.try_into() {
        Ok(1) => one.to_owned(),
        _ => format!("{one}{plural}"),
    }
}

/// `is` or `are`, of so many.
pub fn are(number: impl TryInto<u64>) -> &'static str {
    match number.try_into() {
        Ok(1) => "is",
        _ => "are",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(0u64, "sample"), "0 samples");
        assert_eq!(counted(1u32, "sample"), "1 sample");
        assert_eq!(counted(2usize, "process"), "2 processes");
        assert_eq!(counted(1u64, "process"), "1 process");
        assert_eq!(counted(u128::MAX, "stack"), "18446744073709551615 stacks");
        assert_eq!((are(1u8), are(0u8)), ("is", "are"));
        assert_eq!(
            (noun(1i64, "frame"), noun(-1i64, "frame")),
            ("frame".into(), "frames".into())
        );
    }
}
