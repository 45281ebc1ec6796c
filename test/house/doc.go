// Package house holds the rules of the house as tests: which way imports
// point, that each package says what it is, that the documentation holds.
package house
