//! The address ranges of a DIE.

use gimli::{AttributeValue, Unit};

use super::{Slice, in_code};

type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;
type Value<'d> = AttributeValue<Slice<'d>>;

/// Ranges of one list after the other that are read of a unit at most: many DIEs of a hostile file can share a long list.
pub(super) const MAX_RANGES: usize = 1 << 22;

/// Attributes that make up address ranges.
#[derive(Default)]
pub(super) struct Extent<'d> {
    low: Option<Value<'d>>,
    high: Option<Value<'d>>,
    ranges: Option<Value<'d>>,
}

impl<'d> Extent<'d> {
    /// Takes an attribute; whether it is one of these.
    pub fn take(&mut self, name: gimli::DwAt, value: Value<'d>) -> bool {
        match name {
            gimli::DW_AT_low_pc => self.low = Some(value),
            gimli::DW_AT_high_pc => self.high = Some(value),
            gimli::DW_AT_ranges => self.ranges = Some(value),
            _ => return false,
        }
        true
    }

    /// Whether it says where the code is, though that may be nowhere.
    pub fn is_told(&self) -> bool {
        self.ranges.is_some() || (self.low.is_some() && self.high.is_some())
    }

    /// The ranges. Code that the linker has thrown away begins at 0 or beyond everything and has none.
    pub fn resolve(
        self,
        dwarf: &Dwarf<'d>,
        unit: &Unit<Slice<'d>>,
        budget: &mut usize,
        mut each: impl FnMut(u64, u64),
    ) -> Result<(), gimli::Error> {
        let mut each = |begin: u64, end: u64| {
            if begin < end && in_code(begin) {
                each(begin, end);
            }
        };
        if let Some(value) = self.ranges
            && let Some(mut list) = dwarf.attr_ranges(unit, value)?
        {
            while *budget > 0
                && let Some(range) = list.next()?
            {
                *budget -= 1;
                each(range.begin, range.end);
            }
            return Ok(());
        }
        let address = |value: Option<Value<'d>>| match value {
            Some(value) => dwarf.attr_address(unit, value),
            None => Ok(None),
        };
        let Some(begin) = address(self.low)? else {
            return Ok(());
        };
        let end = match self.high {
            Some(AttributeValue::Udata(size)) => Some(begin.saturating_add(size)),
            other => address(other)?,
        };
        if let Some(end) = end {
            each(begin, end);
        }
        Ok(())
    }
}
