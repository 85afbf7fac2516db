package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A file of marks is entries of markSize bytes: what it is about, three zeros,
// the digest of a key, a revision, the digest of a content, and a checksum of
// all that. The first entry says what file it is.
const (
	markSize = 48
	// markBatch bounds the entries of one write, and so what a crash can leave
	// unfinished.
	markBatch = 4096

	markHead   = 'S'
	markRaised = 'M' // also to zero: forgotten
	markAll    = 'A' // everything before is forgotten
	markRebase = 'R' // revision is the number of a rebase
)

var (
	markMagic = digest([]byte("sluice revisions"))
	markTable = crc32.MakeTable(crc32.Castagnoli)
)

func appendMark(b []byte, about byte, name digest, m mark) []byte {
	start := len(b)
	b = append(b, about, 0, 0, 0)
	b = append(b, name[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(m.revision))
	b = append(b, m.content[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], markTable))
}

func readMark(b []byte) (about byte, name digest, m mark, ok bool) {
	sum := binary.BigEndian.Uint32(b[markSize-4:])
	m = mark{revision: int64(binary.BigEndian.Uint64(b[20:])), content: digest(b[28:44])}
	return b[0], digest(b[4:20]), m, crc32.Checksum(b[:markSize-4], markTable) == sum
}

// readMarks reads a file. good is how much of it is in order: what is behind
// that is a write that was not finished. Damage that is none is an error.
func readMarks(text []byte) (state *markState, good int, err error) {
	state = &markState{marks: map[digest]mark{}}
	for ; good+markSize <= len(text); good += markSize {
		about, name, m, ok := readMark(text[good:])
		if !ok {
			break
		}
		if first := good == 0; first != (about == markHead) || first && name != markMagic {
			return nil, 0, fmt.Errorf("%w: entry %d is no entry of its place", ErrMarksDamaged, good/markSize)
		}
		switch {
		case about == markRaised && m == mark{}:
			delete(state.marks, name)
		case about == markRaised:
			state.marks[name] = m
		case about == markAll:
			clear(state.marks)
		case about == markRebase:
			state.rebase = m.revision
		case about != markHead:
			return nil, 0, fmt.Errorf("%w: entry %d is of an unknown kind", ErrMarksDamaged, good/markSize)
		}
	}
	return state, good, torn(text, good)
}

// torn is nil when what is behind good may be a write that a crash cut short.
func torn(text []byte, good int) error {
	if good == 0 {
		return fmt.Errorf("%w: it has no beginning", ErrMarksDamaged)
	}
	if len(text)-good > markBatch*markSize {
		return fmt.Errorf("%w: %d bytes from %d on", ErrMarksDamaged, len(text)-good, good)
	}
	for at := good + markSize; at+markSize <= len(text); at += markSize {
		if _, _, _, ok := readMark(text[at:]); ok {
			return fmt.Errorf("%w: entry %d, and a later one is in order", ErrMarksDamaged, good/markSize)
		}
	}
	return nil
}

// write appends batch. What a write that failed left is overwritten by the
// next.
func (l *MarkLog) write(batch pendingMarks) error {
	if err := l.inPlace(); err != nil {
		return err
	}
	var b []byte
	if batch.all {
		b = appendMark(b, markAll, digest{}, mark{})
	}
	if batch.rebase != 0 {
		b = appendMark(b, markRebase, digest{}, mark{revision: batch.rebase})
	}
	for name, m := range batch.marks {
		b = appendMark(b, markRaised, name, m)
	}
	for piece := range slices.Chunk(b, markBatch*markSize) {
		if err := l.append(piece); err != nil {
			return err
		}
	}
	if l.size > 2*l.last+1<<20 {
		return l.compact()
	}
	return nil
}

func (l *MarkLog) append(b []byte) error {
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(b, l.size); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.size += int64(len(b))
	return nil
}

// inPlace sees to it that the file still stands under its name. When it does
// not, all of it is written there anew.
func (l *MarkLog) inPlace() error {
	if l.file != nil {
		ours, err := l.file.Stat()
		if err != nil {
			return err
		}
		there, err := os.Stat(l.path())
		if err == nil && os.SameFile(ours, there) {
			return nil
		}
	}
	l.opt.Log.Error("the file of the revision marks was taken away or replaced; it is written anew", "file", l.path())
	return l.compact()
}

// compact writes anew what the file says in the end.
func (l *MarkLog) compact() error {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, l.size))
	if err != nil {
		return err
	}
	state, good, err := readMarks(text)
	if err != nil || int64(good) != l.size {
		return errors.Join(fmt.Errorf("%w while in use", ErrMarksDamaged), err)
	}
	l.shorten(state, text)
	return l.renew(state)
}

// shorten forgets what was raised longest ago, beyond the bound.
func (l *MarkLog) shorten(state *markState, text []byte) {
	over := len(state.marks) - l.opt.Max
	seen := map[digest]int{}
	if over > 0 {
		for at := 0; at < len(text); at += markSize {
			_, name, _, _ := readMark(text[at:])
			seen[name] = at
		}
	}
	for at := 0; over > 0 && at < len(text); at += markSize {
		_, name, _, _ := readMark(text[at:])
		if _, live := state.marks[name]; live && seen[name] == at {
			delete(state.marks, name)
			over--
		}
	}
}

// renew replaces the file by one that says state, in one step.
func (l *MarkLog) renew(state *markState) error {
	b := appendMark(nil, markHead, markMagic, mark{})
	if state.rebase != 0 {
		b = appendMark(b, markRebase, digest{}, mark{revision: state.rebase})
	}
	for name, m := range state.marks {
		b = appendMark(b, markRaised, name, m)
	}
	f, err := os.CreateTemp(l.opt.Dir, "."+markFile+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(f.Name(), l.path())
	}
	if err == nil {
		err = syncDir(filepath.Dir(l.path()))
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size, l.last = f, int64(len(b)), int64(len(b))
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
