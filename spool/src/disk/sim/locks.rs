//! The kernel's locks on one file: the `flock` of readers and recyclers, and the writer's own.

/// Who holds what, by open file description.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    readers: Vec<u64>,
    exclusive: Option<u64>,
    writer: Option<u64>,
}

impl Locks {
    pub(super) fn share(&mut self, handle: u64) -> bool {
        if self.exclusive.is_some_and(|holder| holder != handle) {
            return false;
        }
        self.exclusive = None;
        if !self.readers.contains(&handle) {
            self.readers.push(handle);
        }
        true
    }

    pub(super) fn exclude(&mut self, handle: u64) -> bool {
        let is_other = |holder: &u64| *holder != handle;
        if self.readers.iter().any(is_other) || self.exclusive.as_ref().is_some_and(is_other) {
            return false;
        }
        self.readers.clear();
        self.exclusive = Some(handle);
        true
    }

    pub(super) fn unlock(&mut self, handle: u64) {
        self.readers.retain(|reader| *reader != handle);
        self.exclusive = self.exclusive.filter(|holder| *holder != handle);
    }

    pub(super) fn take_writer(&mut self, handle: u64) -> bool {
        let holder = *self.writer.get_or_insert(handle);
        holder == handle
    }

    /// The description was closed.
    pub(super) fn close(&mut self, handle: u64) {
        self.unlock(handle);
        self.writer = self.writer.filter(|holder| *holder != handle);
    }
}
