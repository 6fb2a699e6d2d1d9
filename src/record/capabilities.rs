//! What this process may still do while it records.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What recording goes on to need, of what is there.
const NEEDED: [CapabilitySet; 8] = [
    // Events and rings of CPUs that come online, names of kernel code.
    CapabilitySet::BPF,
    CapabilitySet::PERFMON,
    CapabilitySet::SYSLOG,
    CapabilitySet::IPC_LOCK,
    // Mappings, mapped files and perf maps of other users' processes.
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::CHECKPOINT_RESTORE,
    // Signals passed on to a command that has become another user.
    CapabilitySet::KILL,
];

/// Gives up for good all that recording does not need from now on: the recorder reads what others have written. Of this
/// thread; there are no others. What cannot be given up is kept.
pub fn keep_needed() {
    let Ok(has) = capabilities(None) else {
        return;
    };
    let mut needed = NEEDED.into_iter().collect::<CapabilitySet>();
    // Where it stands for those that were split off from it.
    if !has
        .permitted
        .contains(CapabilitySet::BPF | CapabilitySet::PERFMON)
    {
        needed |= CapabilitySet::SYS_ADMIN;
    }
    let _ = set_capabilities(
        None,
        CapabilitySets {
            effective: has.effective & needed,
            permitted: has.permitted & needed,
            inheritable: CapabilitySet::empty(),
        },
    );
}
