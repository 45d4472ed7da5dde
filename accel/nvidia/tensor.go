//go:build cgo

package nvidia

import (
	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// How many dimensions a tensor may have, and has to have to be read by columns.
const (
	mostDims  = 5
	leastDims = 3
)

// TensorMap has the driver encode a tensor's description. Its address is not checked: kernels can access any address by
// themselves.
func (c *Context) TensorMap(a *cuda.TensorMapArgs) (m [16]uint64, r cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return m, r
	}
	least := map[uint32]uint32{accel.TiledTensor: 1, accel.ColumnsOfTensor: leastDims, accel.MovedTensor: 0}
	n, known := least[a.Form]
	if !known || a.Rank < n || a.Rank > mostDims {
		return m, cuda.ErrorInvalidValue
	}
	m, r = driver.TensorMap(c.ctx, a)
	return m, c.failIfSticky(r)
}
