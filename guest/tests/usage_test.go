package tests

import "pegasus/cuda"

// DomainUsage is for tools: no program here asks.
func (g *guest) DomainUsage(cuda.Call, cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}
