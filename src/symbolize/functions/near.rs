//! The few functions of large symbol tables that decide what covers some addresses, without looking at the names of others: a short
//! report asks a program with hundreds of thousands of functions for a dozen of them.

use object::{Object, ObjectSymbol, ObjectSymbolTable, SymbolIndex};

use super::{FunctionTable, SectionEnds};

/// A symbol that is needed.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    range: (u64, u64),
    dynamic: bool,
    index: SymbolIndex,
}

/// The symbols of one image that are needed.
#[derive(Debug, Default)]
struct OfImage {
    /// They say that they cover an address.
    covering: Vec<Wanted>,
    /// Of each address those that begin last before it, but after the address before it.
    nearest: Vec<Vec<Wanted>>,
}

impl FunctionTable {
    /// As [`FunctionTable::of`], for these addresses, which ascend: it says nothing of others.
    pub fn near(images: &[&[u8]], addresses: &[u64]) -> FunctionTable {
        let mut table = FunctionTable::default();
        let read = images
            .iter()
            .try_for_each(|image| table.read_near(image, addresses));
        if read.is_none() {
            return FunctionTable::of(images.iter().copied());
        }
        table.add_stubs(images, Some(addresses));
        table.add_go(images, Some(addresses));
        table.build();
        table
    }

    /// Adds what is needed of one image; `None` when that cannot be told without looking at all of it.
    fn read_near(&mut self, image: &[u8], addresses: &[u64]) -> Option<()> {
        // One that is no ELF file adds nothing.
        let Ok(elf) = object::File::parse(image) else {
            return Some(());
        };
        let wanted = wanted(&elf, addresses);
        let find = |wanted: &Wanted| match wanted.dynamic {
            true => elf
                .dynamic_symbol_table()?
                .symbol_by_index(wanted.index)
                .ok(),
            false => elf.symbol_by_index(wanted.index).ok(),
        };
        for wanted in &wanted.covering {
            let _ = self.add(&find(wanted)?, wanted.range);
        }
        for wanted in wanted.nearest.iter().flatten() {
            // Without a name it is no function, and another one is the nearest.
            self.add(&find(wanted)?, wanted.range)?;
        }
        Some(())
    }
}

/// A function without a size reaches to where the next one begins, so that those nearest before an address decide of them.
fn wanted(elf: &object::File<'_>, addresses: &[u64]) -> OfImage {
    let ends = SectionEnds::of(elf);
    let mut all = OfImage {
        covering: Vec::new(),
        nearest: vec![Vec::new(); addresses.len()],
    };
    let symbols = elf.symbols().map(|symbol| (false, symbol));
    let dynamic = elf.dynamic_symbols().map(|symbol| (true, symbol));
    for (dynamic, symbol) in symbols.chain(dynamic) {
        let Some(range) = ends.range(&symbol) else {
            continue;
        };
        let at = addresses.partition_point(|address| *address < range.0);
        let (Some(first), Some(nearest)) = (addresses.get(at), all.nearest.get_mut(at)) else {
            continue;
        };
        let wanted = Wanted {
            range,
            dynamic,
            index: symbol.index(),
        };
        if symbol.size() > 0 && *first < range.1 {
            all.covering.push(wanted);
            continue;
        }
        match nearest.first().map(|known| known.range.0.cmp(&range.0)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Equal) => nearest.push(wanted),
            Some(std::cmp::Ordering::Less) | None => {
                nearest.clear();
                nearest.push(wanted);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program has functions with and without a size, several names for the same bytes, and both tables.
    #[test]
    fn what_is_near_is_what_the_whole_table_has() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().find_map(|line| {
            let path = line.split_whitespace().nth(5)?;
            path.contains("/libc.so").then(|| path.to_owned())
        });
        let libc = std::fs::read(libc.unwrap()).unwrap();
        let (image, libc): (&[u8], &[u8]) = (&image, &libc);
        let sets: [(&[&[u8]], &[usize]); 4] = [
            (&[libc], &[1, 7, 1009]),
            (&[image], &[10_007]),
            (&[libc, image], &[100_003]),
            (&[b"none"], &[1]),
        ];
        for (images, steps) in sets {
            let whole = FunctionTable::of(images.iter().copied());
            let edges: Vec<u64> = whole
                .all()
                .flat_map(|f| {
                    let (start, end) = (f.start, f.start.saturating_add(f.size));
                    [start.wrapping_sub(1), start, start + f.size / 2, end]
                })
                .collect();
            for step in steps.iter().copied() {
                let mut addresses: Vec<u64> = edges.iter().copied().step_by(step).collect();
                addresses.extend([0, u64::MAX]);
                addresses.sort_unstable();
                addresses.dedup();
                let near = FunctionTable::near(images, &addresses);
                let name = |table: &FunctionTable, address| {
                    let function = table.function(table.find(address)?)?;
                    Some((function.start, table.name(function).to_owned()))
                };
                for address in &addresses {
                    assert_eq!(
                        name(&near, *address),
                        name(&whole, *address),
                        "{address:#x}"
                    );
                }
                assert!(step < 1009 || near.functions.len() * 4 <= whole.functions.len());
            }
        }
    }
}
