//! Names as their source has them.

use std::fmt::{self, Write};

use super::PLT;

/// Longer names, as written out, stay as they are in the file: a short one can stand for gigabytes.
const MAX_DEMANGLED: usize = 1 << 16;

/// `name` as its source has it, for C++ and Rust; others as they are.
pub fn demangle(name: &str) -> String {
    if let Some(function) = name.strip_suffix(PLT) {
        return demangle(function) + PLT;
    }
    let mut text = Bounded(String::new());
    let written = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(text, "{rust:#}").is_ok()
    } else if name.starts_with("_Z")
        // Other names are types to the demangler: `a` is `signed char`.
        && let Ok(cpp) = cpp_demangle::Symbol::new(name)
    {
        let options = cpp_demangle::DemangleOptions::default();
        cpp.structured_demangle(&mut text, &options).is_ok()
    } else {
        false
    };
    if written {
        return text.0;
    }
    if let Some(function) = name.strip_prefix(CONSTRUCTORS) {
        return format!("global constructors keyed to {}", demangle(function));
    }
    without_types(name).unwrap_or_else(|| name.to_owned())
}

/// What initializes a file's variables, named after a function of the file.
const CONSTRUCTORS: &str = "_GLOBAL__sub_I_";

/// The name of an instance of a C++ template, without what it takes and returns, where that has a value of a type (`sr`) that g++ writes
/// as the demangler does not know it: `std::swap<int>`.
fn without_types(name: &str) -> Option<String> {
    let is_cpp = name.starts_with("_Z");
    let name = is_cpp.then_some(name.as_bytes())?;
    let (symbol, rest) = cpp_demangle::BorrowedSymbol::with_tail(name).ok()?;
    let mut text = Bounded(String::new());
    let options = cpp_demangle::DemangleOptions::default();
    let options = options.no_params().no_return_type();
    symbol.structured_demangle(&mut text, &options).ok()?;
    // All of the name was read, what the template was given too; that of operators may end alike.
    let whole = text.0.ends_with('>') && !text.0.contains("operator");
    (whole && memchr::memmem::find(rest, b"sr").is_some()).then_some(text.0)
}

/// Text that does not grow beyond [`MAX_DEMANGLED`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len().saturating_add(part.len()) > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each template argument names the one before it twice.
    #[test]
    fn a_name_that_stands_for_gigabytes_stays_as_it_is() {
        let doubled = |levels: usize| {
            let digit = |n: usize| std::char::from_digit(n as u32, 36).unwrap();
            let digit = |n: usize| digit(n).to_ascii_uppercase();
            let mut name = "_Z1fSt4pairIiiE".to_owned();
            // Substitution S_ is `std::pair`, S0_ the first pair, and each further pair adds one.
            for level in 0..levels {
                let before = digit(level);
                name.push_str(&format!("S_IS{before}_S{before}_E"));
            }
            name
        };
        let lens: Vec<usize> = [4, 8].map(|n| demangle(&doubled(n)).len()).into();
        assert!(lens[1] > 10 * lens[0], "{lens:?}");
        let name = doubled(30);
        assert_eq!(demangle(&name), name);
    }

    /// What g++ writes for `swap` of the standard library, and as much of such names as is certain.
    #[test]
    fn a_template_is_named_without_types_that_cannot_be_read() {
        let types = "NSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS3_ESt18\
                     is_move_assignableIS3_EEE5valueEvE4typeERS3_SC_";
        assert_eq!(demangle(&format!("_ZSt4swapIiE{types}")), "std::swap<int>");
        for name in [
            // Without what the template was given, an operator, and something else behind a name.
            format!("_ZSt4swap{types}"),
            format!("_ZN1AptIiE{types}"),
            "_ZSt4swapIiEvv_more".to_owned(),
        ] {
            assert_eq!(demangle(&name), name);
        }
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("_ZN3app5driveEi"), "app::drive(int)");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(
            demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangle("do_syscall_64"), "do_syscall_64");
        assert_eq!(demangle("memcpy@plt"), "memcpy@plt");
        assert_eq!(
            demangle("_GLOBAL__sub_I__ZN3app5driveEi"),
            "global constructors keyed to app::drive(int)"
        );
        assert_eq!(demangle("_ZN3app5driveEi@plt"), "app::drive(int)@plt");
        for name in ["_Z", "a", "i", "Pc", "St", "f", "_GLOBAL__I_x", ""] {
            assert_eq!(demangle(name), name);
        }
    }
}
