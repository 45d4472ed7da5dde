package worker

import (
	"pegasus/cuda"
)

// TensorMap serves devices whose kernels copy tiles of tensors.
func (s *session) TensorMap(c cuda.Call, a cuda.TensorMapArgs) (out cuda.TensorMapResult, r cuda.Result) {
	g, r := s.context(c)
	if r != cuda.Success {
		return out, r
	}
	m := g.can.Tensors
	if m == nil {
		return out, cuda.ErrorNotSupported
	}
	out.Map, r = m.TensorMap(&a)
	return out, g.report(r)
}
