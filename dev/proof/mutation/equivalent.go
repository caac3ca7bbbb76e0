package mutation

// equivalent are the mutants, by name, that nothing can show to be wrong, and why.
var equivalent = map[string]string{}
