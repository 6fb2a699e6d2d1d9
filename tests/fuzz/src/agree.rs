//! What several ways to read a capture say of it must not contradict each other.

use bprof::capture::repair::{RepairError, repair};
use bprof::capture::{Reader, verify};
use bprof::profile::Profile;

/// What a report calls damaged is damage to `verify`; a report of what is verified to be good is whole.
pub fn report_and_verify(reader: &Reader, profile: &Profile) {
    let verified = verify::verify(reader, || ());
    if profile.about.is_damaged() || profile.about.damaged_samples > 0 {
        assert!(
            !verified.damage.is_empty(),
            "only the report says: {:?}",
            profile.about.damage
        );
    }
    let shown = profile
        .rows
        .iter()
        .fold(0u64, |sum, row| row.samples.saturating_add(sum));
    assert_eq!(shown, verified.samples, "verified and shown");
}

/// A capture that opens can be repaired; what comes of it has no damage, and every sample that could be read.
pub fn repaired(reader: &Reader) {
    let before = verify::verify(reader, || ());
    let (bytes, repaired) = match repair(reader, Vec::new(), || ()) {
        Err(RepairError::Nothing) if reader.is_merged() && reader.members().is_empty() => return,
        repaired => repaired.expect("a repair"),
    };
    assert_eq!(repaired.samples, before.samples);
    assert_eq!(repaired.bytes, bytes.len() as u64);
    let after = Reader::from_bytes(bytes).expect("what was repaired opens");
    let after = verify::verify(&after, || ());
    assert!(
        after.damage.is_empty(),
        "{:?}, after {:?}",
        after.damage,
        before.damage
    );
    assert_eq!(after.samples, before.samples);
    assert_eq!(after.cut, None);
}
