//! Values that never print (CRD-1, CRD-2).
