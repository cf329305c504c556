// Package measure holds the measured operations, which the benchmarks and the report share. An [Op]
// measures one operation once. [Interleave] runs several operations in turn, so that other load on
// the machine affects all of them alike.
package measure
