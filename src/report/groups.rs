//! The groups that samples were counted by, for the views that show each.

use hashbrown::HashMap;

use crate::profile::{Profile, Row};

/// Groups that print alike, as one.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// As it is at the root of folded stacks, but true: control characters are in it.
    pub name: String,
    /// Its rows.
    pub rows: Vec<&'a [Row]>,
    /// Their weight.
    pub weight: u64,
}

/// All groups with samples, heaviest first, then by name.
pub(super) fn groups(profile: &Profile) -> Vec<Group<'_>> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for rows in profile.rows.chunk_by(|a, b| a.group == b.group) {
        let number = rows.first().map_or(0, |row| row.group);
        let name = profile.root(number).unwrap_or("all").to_owned();
        let at = *index.entry(name.clone()).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group {
                name,
                rows: Vec::new(),
                weight: 0,
            });
        }
        if let Some(group) = groups.get_mut(at) {
            let weight = rows
                .iter()
                .fold(0u64, |sum, row| sum.saturating_add(row.weight));
            group.rows.push(rows);
            group.weight = group.weight.saturating_add(weight);
        }
    }
    groups.retain(|group| group.weight > 0);
    groups.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    #[test]
    fn groups_that_print_alike_are_one_and_the_heaviest_is_first() {
        let mut b = Builder::default();
        let processes = [b.process("a", 7), b.process("b", 8), b.process("a", 7)];
        for (i, process) in processes.into_iter().enumerate() {
            b.row(process, &["main"], 5 + i as u64);
        }
        let groups = groups(&b.profile);
        let found: Vec<_> = groups
            .iter()
            .map(|g| (&*g.name, g.weight, g.rows.len()))
            .collect();
        assert_eq!(found, [("a-7", 12, 2), ("b-8", 6, 1)]);
    }
}
