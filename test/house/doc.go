// Package house holds the rules of the house as tests: the direction of imports,
// the size of files and types, comments, and documentation that holds.
package house
