package policies

// deficit is what DRR knows of a unit.
type deficit struct{}
