//! What pictures print of frames, and in which colour: the hue tells the kind, its shade the module.

use hashbrown::HashMap;

use crate::profile::{Frame, FrameKind};

use super::text;

/// What a box stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A function of a program.
    User,
    /// One that was inlined into its caller.
    Inlined,
    /// A function of the kernel.
    Kernel,
    /// No function: a group, as a process, or the mark of what is missing.
    Mark,
    /// Code that has no name.
    Unnamed,
}

impl Kind {
    /// That of a frame, which reads `name`.
    pub fn of(frame: &Frame, name: &str) -> Kind {
        // No symbol reads like that but the one page that is its own name.
        let is_label = name.starts_with('[') && name.ends_with(']') && name != "[vsyscall]";
        match frame.kind {
            FrameKind::User | FrameKind::Kernel if is_label => Kind::Unnamed,
            FrameKind::User if frame.inlined => Kind::Inlined,
            FrameKind::User => Kind::User,
            FrameKind::Kernel => Kind::Kernel,
            FrameKind::Truncated | FrameKind::LeftOut => Kind::Mark,
        }
    }

    /// In the order of the legend.
    pub const ALL: [Kind; 5] = [
        Kind::User,
        Kind::Inlined,
        Kind::Kernel,
        Kind::Mark,
        Kind::Unnamed,
    ];

    /// What the legend says; `group` is what one group is.
    pub fn label(self, group: &'static str) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Inlined => "inlined",
            Kind::Kernel => "kernel",
            Kind::Mark => group,
            Kind::Unnamed => "no name",
        }
    }

    /// Hue in degrees and how far modules go from it; saturation; lightness and how far functions go from it.
    fn range(self) -> (f64, f64, f64, f64, f64) {
        match self {
            Kind::User => (37.0, 13.0, 0.86, 0.65, 0.07),
            Kind::Inlined => (146.0, 12.0, 0.45, 0.64, 0.06),
            Kind::Kernel => (213.0, 10.0, 0.72, 0.71, 0.06),
            Kind::Mark => (220.0, 0.0, 0.06, 0.79, 0.03),
            Kind::Unnamed => (15.0, 6.0, 0.25, 0.73, 0.05),
        }
    }

    /// The colour in the middle, which the legend shows.
    pub fn middle(self) -> Rgb {
        let (hue, _, saturation, lightness, _) = self.range();
        rgb(hue, saturation, lightness)
    }

    /// The colour of a function. Those of one module have one hue, and neighbours can be told apart.
    pub fn color(self, name: &str, module: &str) -> Rgb {
        let (hue, hues, saturation, lightness, shades) = self.range();
        let hue = hue + hues * spread(module);
        rgb(hue, saturation, lightness + shades * spread(name))
    }
}

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// A number from -1 to 1 that is the same for a text on every machine.
fn spread(text: &str) -> f64 {
    f64::from(crc32c::crc32c(text.as_bytes())) / f64::from(u32::MAX) * 2.0 - 1.0
}

/// Hue in degrees, saturation and lightness from 0 to 1, by the formulas of CSS Color 4.
fn rgb(hue: f64, saturation: f64, lightness: f64) -> Rgb {
    let chroma = saturation * lightness.min(1.0 - lightness);
    [0.0, 8.0, 4.0].map(|n| {
        let k = (n + hue / 30.0).rem_euclid(12.0);
        let part = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (part * 255.0).round() as u8
    })
}

/// Labels of a picture, by number. Boxes side by side with one label are one.
#[derive(Debug, Default)]
pub(super) struct Labels {
    labels: Vec<Label>,
    index: HashMap<(Kind, Box<str>), u32>,
}

#[derive(Debug)]
struct Label {
    kind: Kind,
    /// As a frame of a folded line, with the mark of its kind.
    text: Box<str>,
    color: Rgb,
}

/// Characters of a name that are drawn.
const MOST: usize = 1000;

impl Labels {
    /// The number of what is printed of a function.
    pub fn number(&mut self, kind: Kind, name: &str, module: &str) -> u32 {
        let mut text = text::folded(&text::xml(&text::cut(name, MOST))).into_owned();
        // inferno takes a line that begins like this for a comment.
        if text.trim_start().starts_with("# ") {
            text = text.replacen("# ", "#\u{a0}", 1);
        }
        let key = (kind, text.into_boxed_str());
        let next = self.labels.len() as u32;
        if let Some(number) = self.index.get(&key) {
            return *number;
        }
        // Every frame has a mark, which inferno leaves out where it prints: so a name that ends in such a mark, or in a
        // blank and digits, is a name still.
        let mark = match kind {
            Kind::User | Kind::Unnamed => "_[j]",
            Kind::Inlined => "_[i]",
            Kind::Kernel => "_[k]",
            Kind::Mark => "_[w]",
        };
        self.labels.push(Label {
            kind,
            text: format!("{}{mark}", key.1).into(),
            color: kind.color(name, module),
        });
        self.index.insert(key, next);
        next
    }

    /// As a frame of a folded line for inferno.
    pub fn marked(&self, number: u32) -> &str {
        self.labels.get(number as usize).map_or("", |l| &l.text)
    }

    /// Without the mark of the kind.
    #[cfg(test)]
    pub fn text(&self, number: u32) -> &str {
        let text = self.marked(number);
        &text[..text.len().saturating_sub(4)]
    }

    /// The colour of a label.
    pub fn color(&self, number: u32) -> Rgb {
        let label = self.labels.get(number as usize);
        label.map_or(Kind::Mark.middle(), |label| label.color)
    }

    /// Of each label, its place in the order of texts.
    pub fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.labels.len() as u32).collect();
        order.sort_unstable_by_key(|number| {
            let label = self.labels.get(*number as usize);
            label.map(|label| (&label.text, label.kind))
        });
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            if let Some(place) = ranks.get_mut(number as usize) {
                *place = rank as u32;
            }
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_css() {
        assert_eq!(rgb(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(rgb(120.0, 1.0, 0.25), [0, 128, 0]);
        assert_eq!(rgb(210.0, 0.5, 0.6), [102, 153, 204]);
        assert_eq!(rgb(360.0, 0.0, 0.5), [128, 128, 128]);
    }

    /// The kinds never look alike: black text is readable on all, and their hues stay apart.
    #[test]
    fn kinds_are_told_apart() {
        for i in 0..500 {
            let name = format!("function{i}");
            let [r, g, b] = Kind::User
                .color(&name, &format!("lib{i}.so"))
                .map(i32::from);
            assert!(r > g && g > b + 20, "{r} {g} {b}");
            let [r, g, b] = Kind::Inlined.color(&name, &name).map(i32::from);
            assert!(g > r + 20 && g > b + 20, "{r} {g} {b}");
            let [r, g, b] = Kind::Kernel.color(&name, &name).map(i32::from);
            assert!(b > g && g > r + 5, "{r} {g} {b}");
        }
        for i in 0..500 {
            // Neither as bright as code with a name nor as grey as what is no code.
            let module = format!("lib{i}.so");
            let [r, g, b] = Kind::Unnamed
                .color(&format!("[{module}+{i:#x}]"), &module)
                .map(i32::from);
            assert!(
                r > g && g > b - 5 && (20..60).contains(&(r - b)),
                "{r} {g} {b}"
            );
        }
        let hue = |module| Kind::User.color("f", module);
        assert_ne!(hue("a.so"), hue("b.so"));
    }

    #[test]
    fn what_has_no_name_is_known_by_its_label() {
        let of = |name: &str, kind| Kind::of(&Frame::new(0, 0, kind), name);
        assert_eq!(of("[libc.so.6+0x12]", FrameKind::User), Kind::Unnamed);
        assert_eq!(of("[unknown]", FrameKind::User), Kind::Unnamed);
        assert_eq!(of("[kernel+0xffff]", FrameKind::Kernel), Kind::Unnamed);
        assert_eq!(of("[vsyscall]", FrameKind::User), Kind::User);
        assert_eq!(of("operator[]", FrameKind::User), Kind::User);
        assert_eq!(of("[other]", FrameKind::LeftOut), Kind::Mark);
    }

    #[test]
    fn one_label_for_what_reads_alike() {
        let mut labels = Labels::default();
        let a = labels.number(Kind::User, "f;", "m");
        assert_eq!(labels.number(Kind::User, "f:", "n"), a);
        assert_ne!(labels.number(Kind::Kernel, "f;", "m"), a);
        assert_eq!(labels.marked(a), "f:_[j]");
        let long = labels.number(Kind::User, &"中".repeat(1 << 20), "m");
        assert_eq!(labels.text(long).chars().count(), MOST + 1);
        assert!(labels.text(long).ends_with('…'));
    }
}
