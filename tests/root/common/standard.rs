//! `profiler report --standard`, as something to ask questions of.

use super::folded::is_function;

/// One sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The line with time, names and numbers.
    pub head: String,
    /// Lines below `Kernel:`, leaf first.
    pub kernel: Vec<String>,
    /// Lines below `Userspace:`, leaf first.
    pub user: Vec<String>,
}

impl Sample {
    /// The time as printed: its place in the order is its place in the alphabet.
    pub fn time(&self) -> &str {
        self.head
            .split_whitespace()
            .find(|w| w.contains(':') && w.contains('-'))
            .unwrap_or_default()
    }

    /// Whether a frame is `function`.
    pub fn has(&self, function: &str) -> bool {
        self.kernel
            .iter()
            .chain(&self.user)
            .any(|frame| is_function(frame, function))
    }
}

/// A standard report.
#[derive(Debug, Clone, Default)]
pub struct Standard {
    /// Lines that begin with `#`.
    pub comments: Vec<String>,
    /// The samples, as ordered.
    pub samples: Vec<Sample>,
}

impl Standard {
    /// Reads a report: comments, and blocks apart by empty lines.
    pub fn parse(text: &str) -> Standard {
        let mut standard = Standard::default();
        for block in text.split("\n\n") {
            let mut sample = Sample::default();
            let mut in_kernel = false;
            for line in block.lines().filter(|line| !line.trim().is_empty()) {
                if line.starts_with('#') {
                    standard.comments.push(line.to_owned());
                } else if sample.head.is_empty() {
                    sample.head = line.to_owned();
                } else if matches!(line.trim(), "Kernel:" | "Userspace:") {
                    in_kernel = line.trim() == "Kernel:";
                } else if in_kernel {
                    sample.kernel.push(line.trim().to_owned());
                } else {
                    sample.user.push(line.trim().to_owned());
                }
            }
            if !sample.head.is_empty() {
                standard.samples.push(sample);
            }
        }
        standard
    }

    /// The first samples, for the message of a failed check.
    pub fn head(&self) -> String {
        let first: Vec<String> = self
            .samples
            .iter()
            .take(5)
            .map(|s| format!("{s:#?}"))
            .collect();
        format!("{}\n{}", self.comments.join("\n"), first.join("\n"))
    }
}
