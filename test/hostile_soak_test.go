//go:build soak

package test

import "testing"

// Hostile guests run for a long time.
func TestSoakHostileSegment(t *testing.T) { hostileSegment(t, soakTime(t)) }

func TestSoakHostileCalls(t *testing.T) { hostileCalls(t, soakTime(t)) }

// A worker overwrites the pages that it shares with others for a long time.
func TestSoakHostileGatePage(t *testing.T)   { hostilePages(t, soakTime(t), gatePage) }
func TestSoakHostileEnginePage(t *testing.T) { hostilePages(t, soakTime(t), enginePage) }
func TestSoakHostilePages(t *testing.T) {
	hostilePages(t, soakTime(t), gatePage, enginePage, bellPage, memoryPage)
}
