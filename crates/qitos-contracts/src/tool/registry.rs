//! Names, wire names, manifest and freezing (REG-1 to REG-10).
