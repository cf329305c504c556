// Package measure has the measured operations, which the benchmarks and the report share: an [Op]
// takes a time once, and [Interleave] runs several in turn, so that whatever else the machine does
// falls on all of them alike.
package measure
