//! Where things are in the table, by the version of its header.

/// A table, of which the header was understood. Offsets are from the beginning of `bytes`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout<'d> {
    /// From the header to the end of what it lies in.
    bytes: &'d [u8],
    /// Bytes of an address.
    pub pointer: usize,
    /// Addresses are counted in units of this many bytes where lengths of code are.
    quantum: u64,
    /// Functions of which it tells.
    pub count: usize,
    /// Where pairs are (beginning of a function, its description), and the end of the last function behind them.
    pairs: usize,
    /// Bytes of each half of a pair.
    half: usize,
    /// What descriptions are counted from.
    descriptions: usize,
    /// Names, each ended by a zero.
    names: usize,
    /// Values by address.
    values: usize,
    /// Where in the header it is told what beginnings of functions are counted from; `None`: they are addresses.
    pub text: Option<usize>,
    /// Where the flags are in a description, if it has some.
    flags: Option<usize>,
}

const GO_1_2: u32 = 0xffff_fffb;
const GO_1_16: u32 = 0xffff_fffa;
const GO_1_18: u32 = 0xffff_fff0;
const GO_1_20: u32 = 0xffff_fff1;

/// Names are not longer.
const LONGEST_NAME: usize = 1 << 14;
/// What tells of the length of one function is not longer in almost all; of others padding seems to be a part.
const LONGEST_VALUES: usize = 1 << 10;

impl<'d> Layout<'d> {
    /// What begins with a header; `None` when it does not.
    pub fn of(bytes: &'d [u8]) -> Option<Layout<'d>> {
        let magic = u32::from_le_bytes(*bytes.first_chunk()?);
        let &[
            _,
            _,
            _,
            _,
            0,
            0,
            quantum @ (1 | 2 | 4),
            pointer @ (4 | 8),
            ..,
        ] = bytes
        else {
            return None;
        };
        let pointer = usize::from(pointer);
        let place = |number: usize| 8 + number * pointer;
        let told = |number: usize| {
            let value = number_at(bytes, place(number), pointer)?;
            usize::try_from(value).ok().filter(|at| *at <= bytes.len())
        };
        let since_1_16 = |first: usize, half, text, flags| {
            let descriptions = told(first + 4)?;
            Some(Layout {
                bytes,
                pointer,
                quantum: quantum.into(),
                count: told(0)?,
                pairs: descriptions,
                half,
                descriptions,
                names: told(first)?,
                values: told(first + 3)?,
                text,
                flags,
            })
        };
        let layout = match magic {
            GO_1_2 => Layout {
                bytes,
                pointer,
                quantum: quantum.into(),
                count: told(0)?,
                pairs: place(1),
                half: pointer,
                descriptions: 0,
                names: 0,
                values: 0,
                text: None,
                flags: None,
            },
            GO_1_16 => since_1_16(2, pointer, None, Some(pointer + 33))?,
            GO_1_18 => since_1_16(3, 4, Some(place(2)), Some(37))?,
            GO_1_20 => since_1_16(3, 4, Some(place(2)), Some(41))?,
            _ => return None,
        };
        // All pairs, and the end.
        layout.start(layout.count)?;
        Some(layout)
    }

    /// The number in the header at `at`.
    pub fn header(&self, at: usize) -> Option<u64> {
        number_at(self.bytes, at, self.pointer)
    }

    /// Where the function of this number begins; that behind the last ends it.
    pub fn start(&self, number: usize) -> Option<u64> {
        let at = number.checked_mul(2)?.checked_mul(self.half)?;
        number_at(self.bytes, self.pairs.checked_add(at)?, self.half)
    }

    /// Where it begins, and where its description is.
    pub fn entry(&self, number: usize) -> Option<(u64, usize)> {
        let at = number.checked_mul(2)?.checked_add(1)?;
        let at = self.pairs.checked_add(at.checked_mul(self.half)?)?;
        let description = usize::try_from(number_at(self.bytes, at, self.half)?).ok()?;
        Some((
            self.start(number)?,
            self.descriptions.checked_add(description)?,
        ))
    }

    /// The flags of a description; none where it has none.
    pub fn flags(&self, description: usize) -> u8 {
        let flags = || {
            self.bytes
                .get(description.checked_add(self.flags?)?)
                .copied()
        };
        flags().unwrap_or_default()
    }

    /// A number of 32 bits of a description, counted from behind the beginning of the function.
    fn word(&self, description: usize, number: usize) -> Option<usize> {
        // That is an address before Go 1.18.
        let start = match self.text {
            Some(_) => 4,
            None => self.pointer,
        };
        let at = description.checked_add(start)?.checked_add(number * 4)?;
        usize::try_from(number_at(self.bytes, at, 4)?).ok()
    }

    pub fn name(&self, description: usize) -> Option<&'d [u8]> {
        let at = self.names.checked_add(self.word(description, 0)?)?;
        let bytes = self.bytes.get(at..)?;
        let bytes = bytes.get(..LONGEST_NAME).unwrap_or(bytes);
        bytes.get(..memchr::memchr(0, bytes)?)
    }

    /// Bytes of the function. Nothing says it but where the values end that it has for each of its instructions: those of the stack
    /// pointer, else those of lines.
    pub fn len(&self, description: usize) -> Option<u64> {
        let mut values = [3, 5].into_iter().filter_map(|number| {
            let at = self.word(description, number).filter(|at| *at != 0)?;
            let bytes = self.bytes.get(self.values.checked_add(at)?..)?;
            covered(bytes.get(..LONGEST_VALUES).unwrap_or(bytes))
        });
        values.next()?.checked_mul(self.quantum)
    }
}

/// For how much code there are values: pairs (change of the value, length of the code before it), up to a change of 0.
fn covered(mut bytes: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    let mut first = true;
    loop {
        if variable(&mut bytes)? == 0 && !first {
            return Some(sum);
        }
        first = false;
        sum = sum.checked_add(variable(&mut bytes)?.into())?;
    }
}

/// A number in groups of seven bits, the lowest first.
fn variable(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn number_at(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?;
    match size {
        4 => bytes
            .first_chunk()
            .copied()
            .map(u32::from_le_bytes)
            .map(u64::from),
        _ => bytes.first_chunk().copied().map(u64::from_le_bytes),
    }
}
