//! Executable contracts of QitOS: named checks over any implementation.
