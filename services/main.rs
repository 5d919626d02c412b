//! walspool.
fn main() {}
