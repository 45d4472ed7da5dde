package session

import (
	"testing"

	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

// Where guests choose handles, the device returns none; a missing texture has none either.
func TestTextureHandle(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.want(cuda.ErrorInvalidHandle, cuda.OpTextureHandle, 1, 0, &cuda.TextureHandleArgs{Texture: 7})
	b.queue(cuda.OpTextureCreate, 1, 0, &cuda.TextureCreateArgs{Texture: 7, Resource: 2, Address: word, Width: 1, Format: 3, Channels: 1})
	b.want(cuda.ErrorNotSupported, cuda.OpTextureHandle, 1, 0, &cuda.TextureHandleArgs{Texture: 7})
	b.queue(cuda.OpTextureDestroy, 1, 0, &cuda.TextureDestroyArgs{Texture: 7})
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(cuda.ErrorInvalidHandle, cuda.OpTextureHandle, 1, 0, &cuda.TextureHandleArgs{Texture: 7})
}
