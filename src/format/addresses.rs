//! The address sections: user and kernel code addresses, each once, ascending.
//!
//! LEB128 count, then the first address and the distances of the others from the one before, LEB128.

use super::error::{FormatError, Problem};
use super::input::Input;
use super::{leb128, limits};

/// Appends `addresses`, which are strictly ascending.
pub fn encode(out: &mut Vec<u8>, addresses: &[u64]) -> Result<(), FormatError> {
    leb128::write(out, addresses.len() as u64);
    let mut last = None;
    for address in addresses {
        let delta = match last {
            None => Some(*address),
            Some(last) => address.checked_sub(last).filter(|d| *d > 0),
        };
        let unsorted = Problem::BadValue {
            what: "address",
            value: *address,
        };
        let delta = delta.ok_or_else(|| FormatError::new("addresses", out.len(), unsorted))?;
        leb128::write(out, delta);
        last = Some(*address);
    }
    Ok(())
}

/// Takes an address section.
pub fn decode(input: &mut Input<'_>) -> Result<Vec<u64>, FormatError> {
    let count = input.count("address count", limits::TABLE)?;
    let mut addresses = Vec::with_capacity(count);
    let mut last: Option<u64> = None;
    for _ in 0..count {
        let at = input.clone();
        let delta = input.leb("address")?;
        let address = match last {
            None => Some(delta),
            Some(last) => last.checked_add(delta).filter(|_| delta > 0),
        };
        let bad = Problem::BadValue {
            what: "distance of addresses",
            value: delta,
        };
        let address = address.ok_or_else(|| at.error(bad))?;
        addresses.push(address);
        last = Some(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_addresses_survive() {
        for addresses in [vec![], vec![0], vec![0, 1, u64::MAX], vec![u64::MAX]] {
            let mut out = Vec::new();
            encode(&mut out, &addresses).unwrap();
            assert_eq!(decode(&mut Input::new("t", &out)), Ok(addresses));
        }
    }

    #[test]
    fn order_is_checked_both_ways() {
        assert!(encode(&mut Vec::new(), &[5, 5]).is_err());
        assert!(encode(&mut Vec::new(), &[5, 4]).is_err());
        assert!(decode(&mut Input::new("t", &[2, 5, 0])).is_err());
        let mut out = vec![2, 5];
        leb128::write(&mut out, u64::MAX - 4);
        assert!(decode(&mut Input::new("t", &out)).is_err());
    }
}
