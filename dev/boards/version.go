package boards

// Version is that of the boards and rules. It rises with each release that
// changes them, so that those who keep a copy know which they have.
const Version = 2
