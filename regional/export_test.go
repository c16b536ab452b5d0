package regional

// OthersWithin is for tests of what a node waits for.
const OthersWithin = othersWithin
