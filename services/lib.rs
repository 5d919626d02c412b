//! walspool services.
