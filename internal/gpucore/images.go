package gpucore

import (
	"cmp"
	"errors"
	"io"
	"slices"
)

const maxFunction = 2 << 20 // bytes of code that are read of a function

// function is a function of a relocated image.
type function struct {
	kernel, name string // the kernel that it belongs to, if it is known; its own name
	start, end   uint64
	image        io.ReaderAt
	code         int64 // where its code lies in the image
}

// query is an address to find in the images of a device's context, or with a ctx of -1 of any.
type query struct {
	place
	pc uint64
}

// readImages names the kernels and functions, and decodes what the faults' instructions do.
func (p *parser) readImages() error {
	found := map[query]*function{} // nil while an address is not found
	for i := range p.dump.Grids {
		found[p.entry(i)] = nil
	}
	for i := range p.dump.Faults {
		found[p.faultAt(i)] = nil
	}
	wanted := make([]query, 0, len(found))
	for q := range found {
		wanted = append(wanted, q)
	}
	slices.SortFunc(wanted, func(a, b query) int { return cmp.Compare(a.pc, b.pc) })
	left := p.size // images do not overlap, so that they are no longer than the dump
	err := p.each(secImage, func(s section) error {
		if left -= s.size; left < 0 || s.size > p.size-min(s.offset, p.size) {
			return errTruncated
		}
		return p.readImage(s, wanted, found)
	})
	if err != nil {
		return err
	}
	for i := range p.dump.Grids {
		if f := found[p.entry(i)]; f != nil {
			p.dump.Grids[i].Kernel = f.kernel
		}
	}
	for i := range p.dump.Faults {
		f := &p.dump.Faults[i]
		at := found[p.faultAt(i)]
		if at != nil {
			f.Kernel, f.Function, f.Offset = at.kernel, at.name, f.PC-at.start
		}
		if f.Grid >= 0 {
			f.Kernel = p.dump.Grids[f.Grid].Kernel
		}
		var params constants
		if f.Grid >= 0 {
			params = constants{p.grids[f.Grid].paramsAt, p.dump.Grids[f.Grid].Params}
		}
		var w *warp
		if i < len(p.warps) {
			w = p.warps[i]
		}
		sm := 0
		for _, d := range p.dump.Devices {
			if d.Index == f.Device {
				sm = architecture(d.SM)
			}
		}
		if err := p.access(f, at, w, params, sm); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) entry(grid int) query {
	g := &p.dump.Grids[grid]
	return query{place{g.Device, p.grids[grid].ctx}, g.Entry}
}

func (p *parser) faultAt(i int) query {
	f := &p.dump.Faults[i]
	q := query{place{f.Device, -1}, f.PC}
	if f.Grid >= 0 {
		q.ctx = p.grids[f.Grid].ctx
	}
	return q
}

// readImage looks for the wanted addresses, which are sorted, in one image.
func (p *parser) readImage(s section, wanted []query, found map[query]*function) error {
	modules, err := p.parent(s, secModules)
	if err != nil {
		return err
	}
	ctxs, err := p.parent(modules, secCtxs)
	if err != nil {
		return err
	}
	r := io.NewSectionReader(p.r, s.offset, s.size)
	f, err := openELF(r, s.size)
	if err != nil {
		return nil //nolint:nilerr // an image that cannot be read names nothing
	}
	var symbols, names section
	var code []section
	bad := f.sections(func(s section) error {
		switch {
		case s.kind == 2 && symbols.size == 0:
			symbols = s
		case s.kind == 1 && s.addr != 0 && s.size > 0 && len(code) < maxTables:
			code = append(code, s)
		}
		return nil
	})
	if bad != nil {
		return bad
	}
	bad = f.sections(func(s section) error {
		if s.index == symbols.link {
			names = s
		}
		return nil
	})
	slices.SortFunc(code, func(a, b section) int { return cmp.Compare(a.addr, b.addr) })
	if bad != nil || symbols.size == 0 {
		return bad
	}
	const funcSymbol = 2
	return f.rows(symbols, 24, func(_ uint32, b []byte) error {
		start, size := le.Uint64(b[8:]), le.Uint64(b[16:])
		if b[4]&15 != funcSymbol || start == 0 || size == 0 || start+size < start {
			return nil
		}
		i, _ := slices.BinarySearchFunc(wanted, start, func(q query, pc uint64) int { return cmp.Compare(q.pc, pc) })
		for ; i < len(wanted) && wanted[i].pc < start+size; i++ {
			q := wanted[i]
			if q.device != int(ctxs.info) || q.ctx != -1 && q.ctx != int(modules.info) {
				continue
			}
			if p.matches++; p.matches > 1<<16 {
				return errors.New("too many functions lie at the same addresses")
			}
			at := function{name: f.text(names, uint64(le.Uint32(b))), start: start, end: start + size, image: r}
			k, ok := slices.BinarySearchFunc(code, start, func(s section, pc uint64) int { return cmp.Compare(s.addr, pc) })
			if !ok {
				k--
			}
			if k < 0 || start-code[k].addr > uint64(code[k].size) || size > uint64(code[k].size)-(start-code[k].addr) {
				continue
			}
			at.code = code[k].offset + int64(start-code[k].addr)
			if b[5]&0x10 != 0 { // a kernel
				at.kernel = at.name
			}
			found[q] = inner(found[q], &at)
		}
		return nil
	})
}

// inner returns the inner one of two functions at an address; a is nil for none.
func inner(a, b *function) *function {
	if a == nil {
		return b
	}
	if b.end-b.start > a.end-a.start {
		a, b = b, a
	}
	if b.kernel == "" {
		b.kernel = a.kernel
	}
	return b
}
