package dependency

// Resolution tells how a reference stands to the source that it names.
type Resolution struct {
	// Source is nil when it is absent, or when sources of its kind are not observed.
	Source *Source
	// Missing: pods cannot start, because the source or a required key is absent.
	Missing bool
	// MissingKeys are the required keys that a present source does not have, or has where
	// an environment variable cannot be made of them: in binaryData.
	MissingKeys []string
}

// Resolve looks for what a reference requires.
func Resolve(r *Reference, source *Source) Resolution {
	out := Resolution{Source: source}
	if source == nil {
		out.Missing = r.Kind.Observed() && !r.Optional()
		return out
	}
	var variables map[string]bool
	for _, key := range r.RequiredKeys {
		k := source.key(key)
		if k != nil && k.Binary && variables == nil {
			variables = r.requiredByVariables()
		}
		if k == nil || k.Binary && variables[key] {
			out.MissingKeys = append(out.MissingKeys, key)
		}
	}
	out.Missing = len(out.MissingKeys) > 0
	return out
}
