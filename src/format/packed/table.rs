//! Functions of one file by its symbol table, and where the file's offsets are in its addresses.
//!
//! ```text
//! record { file: FileKey, loads: [Load] }
//! strings: the mangled names of N functions, at least 1
//! column of N starts, each the distance from the one before; must not be constant
//! column of N lengths
//! column of N flags: bit 1, the symbol has a size of its own
//! ```

use serde::{Deserialize, Serialize};

use super::text::Texts;
use super::{FileKey, FormatError, Problem, limits};
use crate::format::aid::Load;
use crate::format::columns::{self, Constant, Layout};
use crate::format::input::Input;
use crate::format::meta;

const WHAT: &str = "packed symbol table";
/// The symbol says how long it is; without it the end is where the next function begins.
const SIZED: u64 = 1;

/// A function of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFunction {
    /// Address in the image.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Mangled name.
    pub name: String,
    /// The symbol says how long it is.
    pub sized: bool,
}

/// Functions of one file; those of several frames add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedTable {
    /// Of which file.
    pub file: FileKey,
    /// Its PT_LOAD program headers, at most [`limits::LOADS`].
    pub loads: Vec<Load>,
    /// Sorted by start.
    pub functions: Vec<PackedFunction>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    file: FileKey,
    loads: Vec<Load>,
}

impl PackedTable {
    /// How many of `functions` fit into one frame: never 0 unless there are none, and names beyond all measure are cut.
    pub fn fitting(functions: &[PackedFunction]) -> usize {
        let mut bytes = 0;
        let fits = |f: &&PackedFunction| {
            bytes += f.name.len();
            bytes < limits::AID / 4
        };
        let count = functions.iter().take_while(fits).count();
        count.clamp(1, limits::PACKED_SYMBOLS as usize / 2)
    }

    /// Appends the frame's content.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let head = Head {
            file: self.file.clone(),
            loads: self.loads.clone(),
        };
        meta::encode(out, WHAT, &head)?;
        let mut names = Texts::default();
        for function in &self.functions {
            let mut end = function.name.len().min(limits::PACKED_STRING as usize);
            while !function.name.is_char_boundary(end) {
                end -= 1;
            }
            names.push(function.name.get(..end).unwrap_or_default());
        }
        names.encode(out);
        let mut before = 0;
        let starts: Vec<u64> = self
            .functions
            .iter()
            .map(|f| f.start - std::mem::replace(&mut before, f.start))
            .collect();
        columns::encode(out, &starts, Layout::Whole, Constant::Never);
        let mut column = |field: fn(&PackedFunction) -> u64| {
            let values: Vec<u64> = self.functions.iter().map(field).collect();
            columns::encode(out, &values, Layout::Whole, Constant::Allowed);
        };
        column(|f| f.len);
        column(|f| if f.sized { SIZED } else { 0 });
        Ok(())
    }

    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<PackedTable, FormatError> {
        let input = &mut Input::new(WHAT, content);
        let value = content.len() as u64;
        let limit = limits::AID as u64;
        if value > limit {
            let what = "content size";
            return Err(input.error(Problem::OverLimit { what, value, limit }));
        }
        let Head { file, loads } = meta::decode(input, "identity")?;
        file.check(WHAT)?;
        let value = loads.len() as u64;
        if value > limits::LOADS {
            let (what, limit) = ("number of PT_LOADs", limits::LOADS);
            return Err(input.error(Problem::OverLimit { what, value, limit }));
        }
        let names = Texts::decode(input)?;
        let count = names.len();
        let at = input.clone();
        let bad = |what, value| at.error(Problem::BadValue { what, value });
        if count == 0 {
            return Err(bad("number of functions", 0));
        }
        let mut column = |what, constant| columns::decode(input, count, what, u64::MAX, constant);
        let starts = column("start", Constant::Never)?;
        let lens = column("length", Constant::Allowed)?;
        let flags = column("flags", Constant::Allowed)?;
        input.end(WHAT)?;
        let mut functions = Vec::with_capacity(count);
        let mut start = 0u64;
        for (i, ((step, len), flags)) in starts.into_iter().zip(lens).zip(flags).enumerate() {
            start = start.checked_add(step).ok_or_else(|| bad("start", step))?;
            if start.checked_add(len).is_none() {
                return Err(bad("length", len));
            }
            functions.push(PackedFunction {
                start,
                len,
                name: names.get(i as u32).unwrap_or_default().to_owned(),
                sized: flags & SIZED != 0,
            });
        }
        Ok(PackedTable {
            file,
            loads,
            functions,
        })
    }
}
