//! What a reader is known to have read and confirmed, over all of its lives.

/// The account of one reader.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ledger {
    /// Last record read in any life.
    pub(super) read: u64,
    /// Confirmed durably, as far as it is known.
    confirmed: u64,
    /// Next record of this life.
    next: Option<u64>,
    /// Records read, each time that they were.
    pub(super) deliveries: u64,
    /// Own memory in KiB and descriptors: in this life's first word, and the most of any life.
    first_cost: Option<(u64, u64)>,
    pub(super) kib_max: u64,
    pub(super) descriptors_max: u64,
    /// The most that any life has grown by, in KiB and descriptors.
    pub(super) grown_kib_max: u64,
    pub(super) grown_descriptors_max: u64,
}

impl Ledger {
    /// A new life begins.
    pub(super) fn begin(&mut self) {
        (self.next, self.first_cost) = (None, None);
    }

    /// Takes one line in.
    ///
    /// # Panics
    /// Where a record is missing, or one comes again that was confirmed.
    pub(super) fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        match (what, numbers.as_slice()) {
            ("S", [behind]) => {
                assert!(*behind >= self.confirmed, "begins behind {behind}, but confirmed {} durably", self.confirmed);
                assert!(*behind <= self.read, "begins behind {behind}, but has read only up to {}", self.read);
                self.next = Some(behind + 1);
            }
            ("B", [first, last]) => {
                assert_eq!(self.next, Some(*first), "a batch begins where the one before ended");
                assert!(first <= last, "a batch holds a record");
                self.next = Some(last + 1);
                self.read = self.read.max(*last);
                self.deliveries += last - first + 1;
            }
            ("D", [confirmed]) => {
                assert!(*confirmed <= self.read, "confirms what it has read");
                self.confirmed = self.confirmed.max(*confirmed);
            }
            ("M", [kib, descriptors]) => self.take_cost(*kib, *descriptors),
            _ => panic!("a reader said {line:?}"),
        }
    }

    fn take_cost(&mut self, kib: u64, descriptors: u64) {
        let (first_kib, first_descriptors) = *self.first_cost.get_or_insert((kib, descriptors));
        self.kib_max = self.kib_max.max(kib);
        self.descriptors_max = self.descriptors_max.max(descriptors);
        self.grown_kib_max = self.grown_kib_max.max(kib.saturating_sub(first_kib));
        self.grown_descriptors_max = self.grown_descriptors_max.max(descriptors.saturating_sub(first_descriptors));
    }
}
