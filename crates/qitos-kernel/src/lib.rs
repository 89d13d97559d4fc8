//! The pure session machine of QitOS and the driver that performs its effects.
