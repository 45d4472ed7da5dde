// Package operate has the tests of the operator's tools that need a browser or a terminal: `make operate-test`. They are
// built with the tag soak.
package operate
