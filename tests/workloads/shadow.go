// shadow PATHS SECONDS [routines]: runs PATHS random call paths through functions of Go, and prints each path as it ran:
// `path main.main;main.plain;...`, root first, with the function that burns last. A sample is right when its own functions, in
// order, begin one of these paths.
//
// routines: the paths run in four goroutines, whose root is main.onRoutine.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const longest = 24

var budget time.Duration // of one path

type walker struct{ sum uint64 }
type walks interface {
	walks(rest []byte, x uint64) uint64
}

//go:noinline
func burns(x uint64) uint64 {
	for start := time.Now(); time.Since(start) < budget; {
		for i := 0; i < 20000; i++ {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	return x
}

// Ends in code of the runtime that is written by hand and has no frames.
//
//go:noinline
func copies(x uint64) uint64 {
	from, to := make([]byte, 1<<12), make([]byte, 1<<12)
	for start := time.Now(); time.Since(start) < budget; {
		for i := 0; i < 400; i++ {
			from[i] = byte(x)
			copy(to, from)
			x += uint64(to[i])
		}
	}
	return x
}

//go:noinline
func plain(rest []byte, x uint64) uint64 { return step(rest, x*3) + x }

//go:noinline
func large(rest []byte, x uint64) uint64 {
	var block [1500]byte
	block[x%1500] = byte(x)
	y := step(rest, x+1)
	return y + uint64(block[y%1500])
}

//go:noinline
func closes(rest []byte, x uint64) uint64 {
	inner := func() uint64 { return step(rest, x+2) + x }
	called = inner
	return called() + x
}

var called func() uint64

//go:noinline
func (w *walker) walks(rest []byte, x uint64) uint64 {
	w.sum += step(rest, x+3)
	return w.sum + x
}

// A function of the standard library is between the two.
//
//go:noinline
func sorts(rest []byte, x uint64) uint64 {
	done, two := false, []int{2, 1}
	sort.Slice(two, func(a, b int) bool {
		if !done {
			done = true
			x += step(rest, x+4)
		}
		return two[a] < two[b]
	})
	return x
}

var names = []string{"main.plain", "main.large", "main.closes;main.closes.func1", "main.(*walker).walks", "main.sorts;main.sorts.func1",
	"main.burns", "main.copies"}

const ends = 5

//go:noinline
func interfaced() walks { return &walker{} }

func step(rest []byte, x uint64) uint64 {
	switch rest[0] {
	case 0:
		return plain(rest[1:], x)
	case 1:
		return large(rest[1:], x)
	case 2:
		return closes(rest[1:], x)
	case 3:
		return interfaced().walks(rest[1:], x)
	case 4:
		return sorts(rest[1:], x)
	case 5:
		return burns(x)
	default:
		return copies(x)
	}
}

//go:noinline
func onRoutine(paths [][]byte, done *sync.WaitGroup) {
	for _, path := range paths {
		step(path, 1)
	}
	done.Done()
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	budget = time.Duration(seconds * 1e9 / float64(count))
	routines := len(os.Args) > 3
	root := "main.main"
	if routines {
		root = "main.onRoutine"
	}
	seed := uint64(88172645463325252)
	random := func(below int) int {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return int(seed % uint64(below))
	}
	paths := make([][]byte, count)
	for i := range paths {
		length := 1 + random(longest-1)
		words := []string{root}
		for at := 0; at < length; at++ {
			kind := random(ends)
			if at+1 == length {
				kind = ends + random(len(names)-ends)
			}
			paths[i] = append(paths[i], byte(kind))
			words = append(words, names[kind])
		}
		fmt.Println("path " + strings.Join(words, ";"))
	}
	if !routines {
		for _, path := range paths {
			step(path, 1)
		}
		return
	}
	var done sync.WaitGroup
	done.Add(4)
	for i := 0; i < 4; i++ {
		go onRoutine(paths[i*count/4:(i+1)*count/4], &done)
	}
	done.Wait()
}
