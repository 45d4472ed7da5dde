package tests

import "pegasus/cuda"

// DomainUsage is for monitoring tools: no program here calls it.
func (g *guest) DomainUsage(cuda.Call, cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}

// TextureHandle is requested of devices that choose handles: this one doesn't.
func (g *guest) TextureHandle(cuda.Call, cuda.TextureHandleArgs) (out cuda.TextureHandleResult, r cuda.Result) {
	return out, cuda.ErrorNotSupported
}
