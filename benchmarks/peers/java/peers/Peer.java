package peers;

/** A consumer that runs until it is closed. */
interface Peer {

    /** Reads on from what is handled; what is under way ends and is committed first. */
    void close();
}
