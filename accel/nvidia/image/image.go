// Package image reads a module's image without a driver: the variables that PTX text or a cubin names, and a cubin's
// kernels with their parameters.
//
// Callers: accel/nvidia, for facts that drivers don't report.
//
// Trust boundary: images are the guest's, and hostile.
package image

// LooksLikeText reports whether an image begins with printable characters.
func LooksLikeText(image []byte) bool {
	for _, b := range image[:min(len(image), 16)] {
		if b != '\t' && b != '\n' && b != '\r' && (b < ' ' || b > '~') {
			return false
		}
	}
	return len(image) > 0
}
