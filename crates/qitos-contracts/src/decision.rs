//! What a step decided, and the parsers of text protocols.
